// WeightRead: how an operator that is heard (base/operator_listener.h) reads a weight: which 8-bit
// operator can replace it, or why none can. readers.cpp applies these rules to all operators of a
// forward. Calibration, FakeScope and QuantizeScope apply the same rules to the operators that they
// hear.
#pragma once

#include "tanren/base/operator_listener.h"
#include "tanren/quantize/quantized_parameters.h"

#include <optional>

namespace tanren {

struct WeightRead {
  std::optional<WeightReader> reader;
  const char* why = "";  // no reader: the form of the operator, "an addmm that scales"
};

// `parameter` is the parameter in whose storage the operator's argument `weight` or `right` lies:
// as it is, or turned by t().
WeightRead read_by_linear(const at::Tensor& input, const at::Tensor& weight,
                          const OperatorListener::Bias& bias, const at::Tensor& parameter);
WeightRead read_by_addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
                         const at::Scalar& beta, const at::Scalar& alpha,
                         const at::Tensor& parameter);
WeightRead read_by_matmul(const at::Tensor& left, const at::Tensor& right,
                          const at::Tensor& parameter);
WeightRead read_by_conv2d(const at::Tensor& input, const at::Tensor& weight,
                          const OperatorListener::Bias& bias,
                          const OperatorListener::Convolution& how, const at::Tensor& parameter);
WeightRead read_by_embedding(const at::Tensor& weight, const at::Tensor& parameter);

}  // namespace tanren
