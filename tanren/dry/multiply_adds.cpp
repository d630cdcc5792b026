#include "tanren/dry/multiply_adds.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace tanren {
namespace {

using Operands = c10::ArrayRef<c10::IValue>;

int64_t numel_of_row(const at::Tensor& weight) {
  return weight.size(0) == 0 ? 0 : weight.numel() / weight.size(0);
}

// Matrix products in attention, each of queries × keys × the width of a head. Backward computes the
// scores again.
constexpr int64_t kForwardProducts = 2, kBackwardProducts = 5;

// Covers torch's attention on [n, heads, tokens, width] and ours on [n, tokens, width], or on q, k
// and v side by side.
std::optional<int64_t> attention(std::string_view name, Operands a) {
  const bool backward = name.size() > 9 && name.substr(name.size() - 9) == "_backward";
  if (name == "scaled_dot_product_attention" || name.rfind("_scaled_dot_product_", 0) == 0) {
    const size_t first = backward ? 1 : 0;
    const at::Tensor& query = a[first].toTensor();
    const int64_t queries = query.numel() / std::max<int64_t>(query.size(-1), 1);
    const int64_t of_keys = query.size(-1), of_values = a[first + 2].toTensor().size(-1);
    return queries * a[first + 1].toTensor().size(-2) *
           (backward ? 3 * of_keys + 2 * of_values : of_keys + of_values);
  }
  if (name != "tanren::attention" && name != "tanren::attention_backward") return std::nullopt;
  const size_t first = backward ? 2 : 0;
  const bool packed = a.size() == first + 1;
  const at::Tensor& query = a[first].toTensor();
  const int64_t keys = packed ? query.size(1) : a[first + 1].toTensor().size(1);
  return (backward ? kBackwardProducts : kForwardProducts) * query.numel() / (packed ? 3 : 1) *
         keys;
}

// The products for the gradients of input and weight are each as large as the forward's. Only the
// requested ones count.
int64_t convolution_gradients(Operands a) {
  const at::Tensor& larger = a[7].toBool() ? a[1].toTensor() : a[0].toTensor();
  const auto asked = a[10].toBoolList();
  return larger.numel() * numel_of_row(a[2].toTensor()) *
         ((asked.get(0) ? 1 : 0) + (asked.get(1) ? 1 : 0));
}

// mkldnn_rnn_layer(input, weights of the input, weights of the state, …).
int64_t recurrent(Operands a) {
  const at::Tensor& input = a[0].toTensor();
  const int64_t rows = input.numel() / std::max<int64_t>(input.size(-1), 1);
  return rows * (a[1].toTensor().numel() + a[2].toTensor().numel());
}

// tanren::quantized_linear(rows, result, weight, …) and quantized_convolution(images, result,
// weight), which write a result that they were given. Weights are [out, …], or packed with both
// sizes rounded up (ops/packed_weight.h).
std::optional<int64_t> of_bytes(std::string_view name, Operands a) {
  if (name == "tanren::quantized_linear") {
    return a[1].toTensor().numel() * a[0].toTensor().size(-1);
  }
  if (name != "tanren::quantized_convolution") return std::nullopt;
  return a[1].toTensor().numel() * numel_of_row(a[2].toTensor());
}

}  // namespace

std::optional<int64_t> multiply_adds(std::string_view name, c10::ArrayRef<c10::IValue> arguments,
                                     const std::vector<at::Tensor>& results) {
  const auto tensor = [&](size_t i) -> const at::Tensor& { return arguments[i].toTensor(); };
  const auto through = [&](const at::Tensor& left) {  // results of a matrix product with `left`
    return results[0].numel() * left.size(-1);
  };
  if (name == "mm" || name == "bmm" || name == "mv") return through(tensor(0));
  if (name == "addmm" || name == "_addmm_activation" || name == "baddbmm" || name == "addmv") {
    return through(tensor(1));
  }
  if (name == "addbmm") return tensor(1).numel() * tensor(2).size(-1);
  if (name == "dot" || name == "vdot") return tensor(0).numel();
  if (name == "convolution_backward") return convolution_gradients(arguments);
  if (name == "mkldnn_rnn_layer") return recurrent(arguments);
  if (name == "mkldnn_rnn_layer_backward") return 2 * recurrent(arguments);
  if (name == "convolution") {  // a transposed one spreads each input over the outputs
    const bool transposed = arguments[6].toBool();
    return (transposed ? tensor(0) : results[0]).numel() * numel_of_row(tensor(1));
  }
  if (const auto found = of_bytes(name, arguments)) return found;
  return attention(name, arguments);
}

}  // namespace tanren
