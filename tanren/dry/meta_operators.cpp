#include "tanren/dry/meta_operators.h"

#include "tanren/dry/meta_scope.h"

#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace tanren::meta {
namespace {

using Sizes = c10::SmallVector<int64_t, 6>;

std::string text(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

[[noreturn]] void misfit(const std::string& expected, const at::Tensor& input) {
  throw Misfit(expected,
               fmt::format("the input is {}, expected {}", text(input.sizes()), expected));
}

const at::Tensor* tensor_at(Arguments arguments, size_t i) {
  if (i >= arguments.size() || !arguments[i].isTensor()) return nullptr;
  const at::Tensor& tensor = arguments[i].toTensor();
  return tensor.defined() ? &tensor : nullptr;
}

// The channels of [n, channels, …] against a tensor with one value per channel.
void check_channels(const at::Tensor& input, const at::Tensor* per_channel) {
  if (per_channel == nullptr) return;
  const int64_t channels = per_channel->size(0);
  if (input.dim() < 2 || input.size(1) != channels) {
    misfit(fmt::format("[n, {}, ...]", channels), input);
  }
}

void check_trailing(const at::Tensor& input, at::IntArrayRef trailing) {
  if (input.dim() >= static_cast<int64_t>(trailing.size()) &&
      input.sizes().slice(input.dim() - trailing.size()) == trailing) {
    return;
  }
  misfit(fmt::format("[..., {}]", fmt::join(trailing, ", ")), input);
}

// A list with one entry stands for all spatial dims.
int64_t entry(const c10::List<int64_t>& list, int64_t i) {
  return list.size() == 1 ? list.get(0) : list.get(static_cast<size_t>(i));
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
at::Tensor convolution(Arguments a) {
  const at::Tensor& input = a[0].toTensor();
  const at::Tensor& weight = a[1].toTensor();
  const auto stride = a[3].toIntList();
  const auto padding = a[4].toIntList();
  const auto dilation = a[5].toIntList();
  const bool transposed = a[6].toBool();
  const auto output_padding = a[7].toIntList();
  const int64_t groups = a[8].toInt();
  const int64_t channels = transposed ? weight.size(0) : weight.size(1) * groups;
  const int64_t spatial = weight.dim() - 2;
  if (input.dim() != weight.dim() || input.size(1) != channels) {
    const char* rest = spatial == 1 ? "length" : spatial == 2 ? "h, w" : "d, h, w";
    misfit(fmt::format("[n, {}, {}]", channels, rest), input);
  }
  Sizes sizes{input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t in = input.size(i + 2);
    const int64_t reach = entry(dilation, i) * (weight.size(i + 2) - 1) + 1;
    const int64_t pad = 2 * entry(padding, i);
    const int64_t out = transposed
                            ? (in - 1) * entry(stride, i) - pad + reach + entry(output_padding, i)
                            : (in + pad - reach) / entry(stride, i) + 1;
    if (in + (transposed ? 0 : pad) < (transposed ? 1 : reach) || out < 1) {
      misfit(fmt::format("at least {} in dim {}", reach - pad, i + 2), input);
    }
    sizes.push_back(out);
  }
  return meta_tensor(sizes, input.scalar_type());
}

int64_t numel_of_row(const at::Tensor& weight) {
  return weight.size(0) == 0 ? 0 : weight.numel() / weight.size(0);
}

// Without these lists, a run on zeros would take the time and memory of the real operator.
constexpr std::string_view kKeepShape[] = {"batch_norm", "group_norm", "layer_norm", "relu",
                                           "hardtanh",   "hardswish",  "flip",       "roll"};
constexpr std::string_view kInPlace[] = {"relu_", "hardtanh_", "hardswish_", "masked_fill_"};

template <size_t n>
bool is_one_of(std::string_view name, const std::string_view (&names)[n]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

void check(std::string_view name, Arguments arguments) {
  const at::Tensor* input = tensor_at(arguments, 0);
  const at::Tensor* weight = tensor_at(arguments, 1);
  if (input == nullptr) return;
  if (name == "linear" && weight != nullptr && weight->dim() == 2) {
    check_trailing(*input, {weight->size(1)});
  } else if ((name == "mm" || name == "matmul") && weight != nullptr && weight->dim() == 2) {
    check_trailing(*input, {weight->size(0)});
  } else if (name == "addmm" && weight != nullptr) {  // addmm(bias, input, weight transposed)
    check_trailing(*weight, {arguments[2].toTensor().size(0)});
  } else if (name == "batch_norm") {
    check_channels(*input, weight != nullptr ? weight : tensor_at(arguments, 3));
  } else if (name == "group_norm") {
    check_channels(*input, tensor_at(arguments, 2));
  } else if (name == "layer_norm") {
    check_trailing(*input, arguments[1].toIntVector());
  } else if (name == "embedding" && weight != nullptr &&
             !at::isIntegralType(weight->scalar_type(), /*includeBool=*/false)) {
    throw Misfit("whole numbers", "the indices are no whole numbers");
  }
}

std::optional<std::vector<at::Tensor>> results(std::string_view name, Arguments arguments) {
  const auto like = [](const at::Tensor& x) {
    return std::vector<at::Tensor>{meta_tensor(x.sizes(), x.scalar_type())};
  };
  if (name == "convolution") return std::vector<at::Tensor>{convolution(arguments)};
  if (is_one_of(name, kKeepShape)) return like(arguments[0].toTensor());
  if (is_one_of(name, kInPlace)) return std::vector<at::Tensor>{arguments[0].toTensor()};
  if (name == "embedding") {  // embedding(weight, indices, …)
    const at::Tensor& weight = arguments[0].toTensor();
    Sizes sizes(arguments[1].toTensor().sizes());
    sizes.push_back(weight.size(1));
    return std::vector<at::Tensor>{meta_tensor(sizes, weight.scalar_type())};
  }
  if (name == "scaled_dot_product_attention") {  // (query, key, value, …)
    const at::Tensor& query = arguments[0].toTensor();
    const at::Tensor& key = arguments[1].toTensor();
    if (query.size(-1) != key.size(-1)) {
      misfit(fmt::format("[..., {}], as the key", key.size(-1)), query);
    }
    Sizes sizes(query.sizes());
    sizes.back() = arguments[2].toTensor().size(-1);
    return std::vector<at::Tensor>{meta_tensor(sizes, query.scalar_type())};
  }
  return std::nullopt;
}

namespace {

// Matrix products in attention, each of queries × keys × the width of a head. Backward computes the
// scores again.
constexpr int64_t kForwardProducts = 2, kBackwardProducts = 5;

// Covers torch's attention on [n, heads, tokens, width] and ours on [n, tokens, width], or on q, k
// and v side by side.
std::optional<int64_t> attention(std::string_view name, Arguments a) {
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
int64_t convolution_gradients(Arguments a) {
  const at::Tensor& larger = a[7].toBool() ? a[1].toTensor() : a[0].toTensor();
  const auto asked = a[10].toBoolList();
  return larger.numel() * numel_of_row(a[2].toTensor()) *
         ((asked.get(0) ? 1 : 0) + (asked.get(1) ? 1 : 0));
}

// mkldnn_rnn_layer(input, weights of the input, weights of the state, …).
int64_t recurrent(Arguments a) {
  const at::Tensor& input = a[0].toTensor();
  const int64_t rows = input.numel() / std::max<int64_t>(input.size(-1), 1);
  return rows * (a[1].toTensor().numel() + a[2].toTensor().numel());
}

}  // namespace

std::optional<int64_t> multiply_adds(std::string_view name, Arguments arguments,
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
  return attention(name, arguments);
}

}  // namespace tanren::meta
