#include "tanren/dry/dry_operators.h"

#include "tanren/base/error.h"
#include "tanren/dry/arguments.h"
#include "tanren/dry/dry_convolution.h"
#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tanren {
namespace {

using ShapeFunction = std::function<std::optional<Results>(const Arguments&)>;

Results itself(const Arguments& a) { return {a[0]}; }
Results nothing(const Arguments&) { return {}; }

Results value_of(const Arguments&) {
  throw NeedsValues(
      "[dry run] the model asks for the value of a tensor (item), and a dry run has none");
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
Results layer_norm(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]).contiguous(), weight = tensor_in(a[2]);
  const auto normed = static_cast<int64_t>(a[1].toIntVector().size());
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end() - normed);
  sizes.resize(static_cast<size_t>(x.dim()), 1);
  const auto options = x.options().dtype(weight.defined() ? weight.scalar_type() : x.scalar_type());
  at::Tensor y = at::empty_like(x);
  return {y, at::empty(sizes, options), at::empty(sizes, options)};
}

// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight, bias,
//                            output_mask)
Results layer_norm_backward(const Arguments& a) {
  const at::Tensor gradient = tensor_in(a[0]).contiguous(), x = tensor_in(a[1]).contiguous();
  const auto wanted = a.back().toBoolList();
  Results results(3, at::Tensor());
  if (wanted[0]) results[0] = at::empty_like(x);
  for (size_t i = 1; i < 3; ++i) {
    if (wanted[i]) results[i] = at::empty_like(tensor_in(a[i + 4]));
  }
  return results;
}

// index_select(input, dim, index)
Results index_select(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]);
  std::vector<int64_t> sizes = x.sizes().vec();
  const int64_t dim = at::maybe_wrap_dim(a[1].toInt(), x.dim());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = tensor_in(a[2]).numel();
  return {at::empty(sizes, x.options())};
}

// embedding_dense_backward(gradient, indices, num_weights, padding_idx, scale)
Results embedding_backward(const Arguments& a) {
  const at::Tensor gradient = tensor_in(a[0]).contiguous();
  return {at::empty({a[2].toInt(), gradient.size(-1)}, gradient.options())};
}

at::OptionalIntArrayRef dims_of(const std::optional<std::vector<int64_t>>& dims) {
  return dims ? at::OptionalIntArrayRef(*dims) : std::nullopt;
}

// sum.dim_IntList(input, dim, keepdim, dtype)
Results sum(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]);
  const auto dims = a[1].toOptional<std::vector<int64_t>>();
  const bool keep = a[2].toBool(), whole = at::isIntegralType(x.scalar_type(), true);
  const auto dtype = a[3].isNone() ? (whole ? at::kLong : x.scalar_type()) : a[3].toScalarType();
  const auto shape = at::meta::get_reduction_shape(x, dims.value_or(std::vector<int64_t>()), keep,
                                                   /*allow_empty_dims=*/false);
  const at::Tensor result = at::empty(shape, x.options().dtype(dtype));
  if (!has_cpu_kernels(x)) return {result};  // a device's kernel casts each element
  // If `dtype` is not that of `x`, the iterator holds a cast of `x`.
  const auto over = at::meta::make_reduction_from_out_ty(x, result, dims_of(dims), keep, dtype);
  // torch's condition for a sum that it accumulates in fp32.
  if (at::isReducedFloatingType(dtype) && over.ndim() >= 2 && over.strides(0)[0] == 0 &&
      over.strides(0)[1] == 0) {
    const at::Tensor wide = at::empty(shape, x.options().dtype(at::kFloat));
    const at::Tensor own = x.to(at::kFloat);
  }
  return {result};
}

// mean.dim(input, dim, keepdim, dtype)
Results mean(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]);
  const auto dims = a[1].toOptional<std::vector<int64_t>>();
  const auto dtype = a[3].isNone() ? x.scalar_type() : a[3].toScalarType();
  const auto shape = at::meta::get_reduction_shape(x, dims.value_or(std::vector<int64_t>()),
                                                   a[2].toBool(), /*allow_empty_dims=*/false);
  const at::Tensor result = at::empty(shape, x.options().dtype(dtype));
  if (at::isReducedFloatingType(dtype) &&
      has_cpu_kernels(x)) {  // torch computes in fp32 and casts back
    const at::Tensor own = x.to(at::kFloat);
    const at::Tensor wide = at::empty(shape, x.options().dtype(at::kFloat));
    const at::Tensor back = wide.to(dtype);
  }
  return {result};
}

constexpr const char* kFlashAttention = "_scaled_dot_product_flash_attention_for_cpu";

// _scaled_dot_product_flash_attention_for_cpu(query [n, heads, tokens, width], key, value,
//                                             dropout, is_causal, attn_mask, scale)
Results flash_attention(const Arguments& a) {
  const at::Tensor query = tensor_in(a[0]);
  const int64_t n = query.size(0), heads = query.size(1), tokens = query.size(2);
  const int64_t width = tensor_in(a[2]).size(-1);
  const auto exact = query.options().dtype(at::toOpMathType(query.scalar_type()));
  const at::Tensor result = at::empty({n, tokens, heads, width}, query.options()).transpose(1, 2);
  const at::Tensor sums = at::empty({n, tokens, heads}, exact).transpose(1, 2);
  if (c10::memoryProfilingEnabled() && query.numel() > 0 && has_cpu_kernels(query)) {
    // The memory that the kernel takes beside its results depends on the lengths and the threads,
    // not on samples and heads. A run of one head on zeros measures it in a fraction of the time.
    torch::jit::Stack stack(a.begin(), a.end());
    const auto narrow_first = [](c10::IValue& value, int64_t dims) {
      if (!value.isTensor()) return;
      at::Tensor tensor = value.toTensor();
      for (int64_t dim = 0; dim < std::min(dims, tensor.dim() - 2); ++dim) {
        tensor = tensor.narrow(dim, 0, 1);
      }
      value = tensor;
    };
    for (const size_t i : {0, 1, 2, 5}) narrow_first(stack[i], 2);
    c10::Dispatcher::singleton()
        .findSchemaOrThrow((std::string("aten::") + kFlashAttention).c_str(), "")
        .redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  }
  return {result, sums};
}

// The functions below make only the results, not the kernels' other allocations (see kShapeOnly).

// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
Results batch_norm(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]);
  const int64_t channels = a[5].toBool() ? x.size(1) : 0;
  return {at::empty_like(x), at::empty({channels}, x.options()),
          at::empty({channels}, x.options())};
}

// native_group_norm(input, weight, bias, n, channels, places, groups, eps)
Results group_norm(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]);
  const std::vector<int64_t> sizes = {a[3].toInt(), a[6].toInt()};
  return {at::empty_like(x), at::empty(sizes, x.options()), at::empty(sizes, x.options())};
}

Results like_first(const Arguments& a) { return {at::empty_like(tensor_in(a[0]))}; }

// native_dropout_backward(gradient, mask, scale): one kernel on a device, two products on the CPU.
std::optional<Results> dropout_backward(const Arguments& a) {
  if (has_cpu_kernels(tensor_in(a[0]))) return std::nullopt;
  return like_first(a);
}

// mkldnn_rnn_layer(input [tokens, n, width], 4 weights, hx, cx, reverse, batch_sizes, mode,
//                  hidden_size, …)
Results recurrent_layer(const Arguments& a) {
  const at::Tensor x = tensor_in(a[0]);
  return {at::empty({x.size(0), x.size(1), a[10].toInt()}, x.options()),
          at::empty_like(tensor_in(a[5])), at::empty_like(tensor_in(a[6])),
          at::empty({0}, x.options())};
}

// For these operators, a run on zeros shows what the kernel allocates, if a TraceScope records it.
// Otherwise the shapes are enough, and no kernel runs, to save time.
constexpr std::array<std::string_view, 6> kShapeOnly = {
    "convolution",       "flip", "hardswish", "mkldnn_rnn_layer", "native_batch_norm",
    "native_group_norm",
};

// Whether this is a convolution of the device that a dry run stands for. The CPU's kernel would not
// show the memory of the device's.
bool is_device_convolution(std::string_view name, const c10::IValue& input) {
  return name == "convolution" && !has_cpu_kernels(input.toTensor());
}

const std::map<std::string_view, ShapeFunction>& known() {
  static const std::map<std::string_view, ShapeFunction> functions = {
      {"_fused_adam_", nothing},
      {"_fused_adamw_", nothing},
      {"_fused_adagrad_", nothing},
      {"_fused_sgd_", nothing},
      {"_local_scalar_dense", value_of},
      {kFlashAttention, flash_attention},
      {"_slow_conv2d_backward", dry_slow_convolution_backward},
      {"_slow_conv2d_forward", dry_slow_convolution},
      {"convolution", dry_convolution_shape},
      {"convolution_backward", dry_convolution_backward},
      {"copy_", itself},
      {"embedding_dense_backward", embedding_backward},
      {"flip", like_first},
      {"hardswish", like_first},
      {"index_select", index_select},
      {"masked_fill_", itself},
      {"masked_scatter_", itself},
      {"mean", mean},
      {"mkldnn_convolution", dry_convolution},
      {"mkldnn_rnn_layer", recurrent_layer},
      {"native_batch_norm", batch_norm},
      {"native_dropout_backward", dropout_backward},
      {"native_group_norm", group_norm},
      {"native_layer_norm", layer_norm},
      {"native_layer_norm_backward", layer_norm_backward},
      {"sum", sum},
  };
  return functions;
}

}  // namespace

const std::vector<const char*>& dry_operators() {
  static const std::vector<const char*> names = {"copy_",
                                                 "convolution",
                                                 "convolution_backward",
                                                 "hardswish_",
                                                 "hardtanh_",
                                                 "masked_fill_.Scalar",
                                                 "masked_fill_.Tensor",
                                                 "masked_scatter_",
                                                 "mean.dim",
                                                 "mkldnn_convolution",
                                                 "relu_",
                                                 "sum.dim_IntList"};
  return names;
}

bool run_dry_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string& full = op.operator_name().name;
  if (full.rfind("aten::", 0) != 0) return false;
  const auto found = known().find(std::string_view(full).substr(6));
  if (found == known().end()) return false;
  const bool shape_only =
      std::find(kShapeOnly.begin(), kShapeOnly.end(), found->first) != kShapeOnly.end();
  const size_t count = op.schema().arguments().size();
  if (shape_only && c10::memoryProfilingEnabled() &&
      !is_device_convolution(found->first, torch::jit::peek(stack, 0, count))) {
    return false;
  }
  const auto arguments = torch::jit::pop(stack, count);
  auto results = found->second(arguments);
  for (const auto& value : results ? *results : arguments) stack.push_back(value);
  return results.has_value();
}

}  // namespace tanren
