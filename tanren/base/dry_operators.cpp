#include "tanren/base/dry_operators.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace tanren {
namespace {

using Arguments = std::vector<c10::IValue>;
using Results = std::vector<c10::IValue>;
using ShapeFunction = std::function<Results(const Arguments&)>;

at::Tensor tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// What oneDNN works in beside the tensors that torch sees: memory for a copy of `like` in its own
// layout, channels in blocks of 16.
at::Tensor blocked_of(std::vector<int64_t> sizes, const at::Tensor& like) {
  constexpr int64_t kBlock = 16;
  sizes.at(1) = (sizes.at(1) + kBlock - 1) / kBlock * kBlock;
  return at::empty(sizes, like.options());
}
at::Tensor blocked(const at::Tensor& like) { return blocked_of(like.sizes().vec(), like); }

// Images of few channels are read as they are.
at::Tensor blocked_source(const at::Tensor& like) {
  return like.size(1) < 8 ? at::Tensor() : blocked(like);
}

at::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight) {
  const bool last =
      input.dim() == 4 && (input.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
                           weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast);
  return last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
Results convolution(const Arguments& a) {
  const at::Tensor weight = tensor(a[1]);
  const auto padding = a[3].toIntVector(), stride = a[4].toIntVector(),
             dilation = a[5].toIntVector();
  const auto format = convolution_format(tensor(a[0]), weight);
  const at::Tensor input = tensor(a[0]).contiguous(format);
  std::vector<int64_t> sizes = {input.size(0), weight.size(0)};
  for (int64_t i = 0; i < weight.dim() - 2; ++i) {
    const auto of = [&](const std::vector<int64_t>& list) {
      return list.size() == 1 ? list[0] : list[static_cast<size_t>(i)];
    };
    const int64_t reach = of(dilation) * (weight.size(i + 2) - 1) + 1;
    sizes.push_back((input.size(i + 2) + 2 * of(padding) - reach) / of(stride) + 1);
  }
  if (format == at::MemoryFormat::ChannelsLast) {
    at::Tensor result = at::empty(sizes, input.options(), format);
    const at::Tensor own_weight = blocked(weight);
    return {result};
  }
  at::Tensor own_result;
  {
    const at::Tensor own_input = blocked_source(input), own_weight = blocked(weight);
    own_result = blocked_of(sizes, input);
  }
  return {at::empty(sizes, input.options())};
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, padding, dilation, transposed,
//                      output_padding, groups, output_mask)
Results convolution_backward(const Arguments& a) {
  const auto wanted = a.back().toBoolList();
  const auto format = convolution_format(tensor(a[1]), tensor(a[2]));
  const bool last = format == at::MemoryFormat::ChannelsLast;
  const at::Tensor gradient = tensor(a[0]).contiguous(format);
  const at::Tensor input = tensor(a[1]).contiguous(format);
  const at::Tensor weight = tensor(a[2]).contiguous(format);
  Results results(3, at::Tensor());
  if (wanted[0]) {
    at::Tensor own_result = last ? at::empty(input.sizes(), input.options(), format) : at::Tensor();
    {
      const at::Tensor own_gradient = last ? at::Tensor() : blocked(gradient);
      const at::Tensor own_weight = blocked(weight);
      if (!last) own_result = blocked(input);
    }
    results[0] = last ? own_result : at::empty(input.sizes(), input.options());
  }
  if (wanted[1]) {
    at::Tensor own_result;
    {
      const at::Tensor own_input = last ? at::Tensor() : blocked_source(input);
      const at::Tensor own_gradient = last ? at::Tensor() : blocked(gradient);
      own_result = blocked(weight);
    }
    const at::Tensor dense = at::empty(weight.sizes(), weight.options());
    results[1] = last ? dense.contiguous(format) : dense;
  }
  if (wanted[2]) results[2] = at::empty({gradient.size(1)}, weight.options());
  return results;
}

Results itself(const Arguments& a) { return {a[0]}; }
Results nothing(const Arguments&) { return {}; }

Results value_of(const Arguments&) {
  throw Error("[dry run] the model asks for the value of a tensor (item), and a dry run has none");
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
Results layer_norm(const Arguments& a) {
  const at::Tensor x = tensor(a[0]).contiguous(), weight = tensor(a[2]);
  const auto normed = static_cast<int64_t>(a[1].toIntVector().size());
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end() - normed);
  sizes.resize(static_cast<size_t>(x.dim()), 1);
  const auto options = x.options().dtype(weight.defined() ? weight.scalar_type() : x.scalar_type());
  at::Tensor y = at::empty_like(x);
  return {y, at::empty(sizes, options), at::empty(sizes, options)};
}

// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight, bias, output_mask)
Results layer_norm_backward(const Arguments& a) {
  const at::Tensor gradient = tensor(a[0]).contiguous(), x = tensor(a[1]).contiguous();
  const auto wanted = a.back().toBoolList();
  Results results(3, at::Tensor());
  if (wanted[0]) results[0] = at::empty_like(x);
  for (size_t i = 1; i < 3; ++i) {
    if (wanted[i]) results[i] = at::empty_like(tensor(a[i + 4]));
  }
  return results;
}

// index_select(input, dim, index)
Results index_select(const Arguments& a) {
  const at::Tensor x = tensor(a[0]);
  std::vector<int64_t> sizes = x.sizes().vec();
  const int64_t dim = at::maybe_wrap_dim(a[1].toInt(), x.dim());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = tensor(a[2]).numel();
  return {at::empty(sizes, x.options())};
}

// embedding_dense_backward(gradient, indices, num_weights, padding_idx, scale)
Results embedding_backward(const Arguments& a) {
  const at::Tensor gradient = tensor(a[0]).contiguous();
  return {at::empty({a[2].toInt(), gradient.size(-1)}, gradient.options())};
}

const std::map<std::string_view, ShapeFunction>& known() {
  static const std::map<std::string_view, ShapeFunction> functions = {
      {"_fused_adam_", nothing},
      {"_fused_adamw_", nothing},
      {"_fused_adagrad_", nothing},
      {"_fused_sgd_", nothing},
      {"_local_scalar_dense", value_of},
      {"convolution_backward", convolution_backward},
      {"copy_", itself},
      {"embedding_dense_backward", embedding_backward},
      {"index_select", index_select},
      {"masked_fill_", itself},
      {"masked_scatter_", itself},
      {"mkldnn_convolution", convolution},
      {"native_layer_norm", layer_norm},
      {"native_layer_norm_backward", layer_norm_backward},
  };
  return functions;
}

}  // namespace

const std::vector<const char*>& dry_operators() {
  static const std::vector<const char*> names = {
      "copy_",           "convolution_backward", "hardswish_",
      "hardtanh_",       "masked_fill_.Scalar",  "masked_fill_.Tensor",
      "masked_scatter_", "mkldnn_convolution",   "relu_"};
  return names;
}

bool run_dry_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string& full = op.operator_name().name;
  if (full.rfind("aten::", 0) != 0) return false;
  const auto found = known().find(std::string_view(full).substr(6));
  if (found == known().end()) return false;
  const auto arguments = torch::jit::pop(stack, op.schema().arguments().size());
  for (auto& value : found->second(arguments)) stack.push_back(std::move(value));
  return true;
}

}  // namespace tanren
