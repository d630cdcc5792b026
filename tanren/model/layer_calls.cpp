#include "tanren/model/layer_calls.h"

#include "tanren/base/text.h"
#include "tanren/base/value_tensors.h"
#include "tanren/dry/dry_convolution.h"
#include "tanren/dry/multiply_adds.h"

#include <c10/util/ScopeExit.h>

#include <fmt/ranges.h>

#include <stdexcept>
#include <string_view>

namespace tanren {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// An input that does not fit the operator's weight.
struct Misfit : std::runtime_error {
  Misfit(std::string expected_shape, const std::string& reason)
      : std::runtime_error(reason), expected(std::move(expected_shape)) {}
  std::string expected;
};

std::string list_of(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

[[noreturn]] void misfit(const std::string& expected, const at::Tensor& input) {
  throw Misfit(expected,
               fmt::format("the input is {}, expected {}", list_of(input.sizes()), expected));
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

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void check_convolution(Arguments a) {
  const at::Tensor &input = a[0].toTensor(), &weight = a[1].toTensor();
  const auto padding = a[4].toIntList(), dilation = a[5].toIntList();
  const bool transposed = a[6].toBool();
  const int64_t channels = transposed ? weight.size(0) : weight.size(1) * a[8].toInt();
  const int64_t spatial = weight.dim() - 2;
  if (input.dim() != weight.dim() || input.size(1) != channels) {
    const char* rest = spatial == 1 ? "length" : spatial == 2 ? "h, w" : "d, h, w";
    misfit(fmt::format("[n, {}, {}]", channels, rest), input);
  }
  // A list with one entry stands for all spatial dims.
  const auto entry = [](const c10::List<int64_t>& list, int64_t i) {
    return list.size() == 1 ? list.get(0) : list.get(static_cast<size_t>(i));
  };
  const auto out = convolution_sizes(a);
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t in = input.size(i + 2), pad = 2 * entry(padding, i);
    const int64_t reach = entry(dilation, i) * (weight.size(i + 2) - 1) + 1;
    if (in + (transposed ? 0 : pad) < (transposed ? 1 : reach) ||
        out[static_cast<size_t>(i) + 2] < 1) {
      misfit(fmt::format("at least {} in dim {}", reach - pad, i + 2), input);
    }
  }
}

// Throws Misfit if an input does not fit the operator's weight.
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
  } else if (name == "convolution") {
    check_convolution(arguments);
  } else if (name == "scaled_dot_product_attention") {  // (query, key, value, …)
    const int64_t width = arguments[1].toTensor().size(-1);
    if (input->size(-1) != width) misfit(fmt::format("[..., {}], as the key", width), *input);
  } else if (name == "embedding" && weight != nullptr &&
             !at::isIntegralType(weight->scalar_type(), /*includeBool=*/false)) {
    throw Misfit("whole numbers", "the indices are no whole numbers");
  }
}

std::vector<at::Tensor> tensors_in(Arguments values) {
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

}  // namespace

void LayerCalls::around(const DryCall& call, c10::function_ref<void()> run) {
  const std::string& full = call.op.operator_name().name;  // "aten::conv2d"
  const std::string name = full.substr(full.rfind(':') + 1);
  // The rules for torch's operators do not apply to other operators with the same names.
  const std::string_view known = full.rfind("aten::", 0) == 0 ? name : std::string_view();
  const std::vector<c10::IValue> arguments = call.arguments().vec();
  if (inside_) return run_counted(call, known, arguments, run);
  OperatorCall told{name, tensors_in(arguments), {}};
  multiply_adds_ = 0;
  inside_ = true;
  const auto leave = c10::make_scope_exit([this] { inside_ = false; });
  try {
    run_counted(call, known, arguments, run);
  } catch (const Misfit& misfit) {
    throw OperatorError(std::move(told), misfit.expected, misfit.what());
  } catch (const c10::Error& error) {
    throw OperatorError(std::move(told), "", first_line(error.what_without_backtrace()));
  }
  told.outputs = tensors_in(call.results());
  told.multiply_adds = multiply_adds_;
  tell_(told);
}

void LayerCalls::run_counted(const DryCall& call, std::string_view name, Arguments arguments,
                             c10::function_ref<void()> run) {
  if (call.on_dry) {
    check(name, arguments);
    if (call.op.hasTag(at::Tag::data_dependent_output) ||
        call.op.hasTag(at::Tag::dynamic_output_shape)) {
      throw Misfit("", std::string(name) + " needs values, and a dry run has only shapes");
    }
  }
  const int64_t before = multiply_adds_;
  run();
  const auto results = tensors_in(call.results());
  if (results.empty()) return;
  const auto own = multiply_adds(name, arguments, results);
  if (own) multiply_adds_ = before + *own;  // instead of those of the operators that it called
}

}  // namespace tanren
