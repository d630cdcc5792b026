// Batch norm of images, fused with the addition of a residual and relu. In training on the CPU in
// channels-last, all of it takes two passes over memory forward and two backward; otherwise torch's
// operators run. Inside an AcrossRanksScope the statistics are over the samples of all ranks
// (synchronised_norm.h). Called by models. Thread-safe, but it writes the running statistics.
#pragma once

#include <ATen/core/Tensor.h>

namespace tanren {

struct BatchNormCall {
  at::Tensor weight, bias;               // [channels]
  at::Tensor running_mean, running_var;  // [channels], updated
  double momentum = 0.1, eps = 1e-5;     // momentum: share of this batch in the running statistics
  bool training = true;                  // false: normalise by the running statistics
  bool relu = false;                     // applied to the result, residual included
  at::Tensor residual = {};              // shaped as x, added to the result; undefined: none
};

// x [n, channels, h, w] → the same shape, layout and dtype. x is bf16 with fp32 parameters, or has
// the parameters' dtype. Differentiable in x, weight, bias and residual; in training on the CPU in
// channels-last only once.
at::Tensor batch_norm(const at::Tensor& x, const BatchNormCall& call);

}  // namespace tanren
