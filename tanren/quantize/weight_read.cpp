#include "tanren/quantize/weight_read.h"

#include <ATen/core/Scalar.h>

#include <algorithm>

namespace tanren {
namespace {

WeightRead no_way(const char* why) { return {std::nullopt, why}; }

bool is_as_it_is(const at::Tensor& argument, const at::Tensor& parameter) {
  return argument.storage_offset() == parameter.storage_offset() &&
         argument.sizes() == parameter.sizes() && argument.strides() == parameter.strides();
}

bool is_turned(const at::Tensor& argument, const at::Tensor& parameter) {
  return argument.dim() == 2 && parameter.dim() == 2 &&
         argument.storage_offset() == parameter.storage_offset() &&
         argument.size(0) == parameter.size(1) && argument.size(1) == parameter.size(0) &&
         argument.stride(0) == parameter.stride(1) && argument.stride(1) == parameter.stride(0);
}

bool is_bias(const at::Tensor& bias, int64_t out) { return bias.dim() == 1 && bias.size(0) == out; }

// x × right.
WeightRead read_as_right_factor(const at::Tensor& right, const at::Tensor& parameter) {
  if (is_turned(right, parameter)) return {WeightReader::linear};
  if (parameter.dim() == 2 && is_as_it_is(right, parameter)) return {WeightReader::projection};
  return no_way("a product with a part of it");
}

bool are_all(at::IntArrayRef values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t own) { return own == value; });
}

}  // namespace

WeightRead read_by_linear(const at::Tensor& input, const at::Tensor& weight,
                          const OperatorListener::Bias& bias, const at::Tensor& parameter) {
  if (input.dim() < 1 || weight.dim() != 2) return no_way("a linear without rows");
  if (bias && bias->defined() && !is_bias(*bias, weight.size(0))) {
    return no_way("a linear whose bias is no vector of its outputs");
  }
  if (parameter.dim() == 2 && is_as_it_is(weight, parameter)) return {WeightReader::linear};
  if (is_turned(weight, parameter)) return {WeightReader::projection};
  return no_way("a linear with a part of it");
}

WeightRead read_by_addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
                         const at::Scalar& beta, const at::Scalar& alpha,
                         const at::Tensor& parameter) {
  if (beta.toDouble() != 1 || alpha.toDouble() != 1) return no_way("an addmm that scales");
  if (left.dim() != 2 || right.dim() != 2 || !is_bias(added, right.size(1))) {
    return no_way("an addmm that adds more than a bias");
  }
  return read_as_right_factor(right, parameter);
}

WeightRead read_by_matmul(const at::Tensor& left, const at::Tensor& right,
                          const at::Tensor& parameter) {
  if (left.dim() < 1 || right.dim() != 2) return no_way("a matmul of no matrix");
  return read_as_right_factor(right, parameter);
}

WeightRead read_by_conv2d(const at::Tensor& input, const at::Tensor& weight,
                          const OperatorListener::Bias& bias,
                          const OperatorListener::Convolution& how, const at::Tensor& parameter) {
  if (parameter.dim() != 4 || !is_as_it_is(weight, parameter)) {
    return no_way("a convolution with a part of it");
  }
  if (input.dim() != 4) return no_way("a convolution of one image without a batch");
  if (how.groups != 1) return no_way("a convolution in groups");
  if (!are_all(how.dilation, 1)) return no_way("a dilated convolution");
  if (weight.size(2) != weight.size(3)) return no_way("a convolution whose kernel is not square");
  if (!are_all(how.stride, how.stride.front()) || !are_all(how.padding, how.padding.front())) {
    return no_way("a convolution with unequal strides or paddings");
  }
  if (bias && bias->defined() && !is_bias(*bias, weight.size(0))) {
    return no_way("a convolution whose bias is no vector of its outputs");
  }
  return {WeightReader::convolution};
}

WeightRead read_by_embedding(const at::Tensor& weight, const at::Tensor& parameter) {
  if (parameter.dim() == 2 && is_as_it_is(weight, parameter)) return {WeightReader::embedding};
  return no_way("an embedding of a part of it");
}

}  // namespace tanren
