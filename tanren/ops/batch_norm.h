// Batch norm of images in training with what follows it: a residual added, negative values cut. On
// the CPU in channels-last it is two passes over memory forward and two backward, all of it;
// elsewhere torch's operators. Within an AcrossRanksScope over the samples of all ranks
// (synchronised_norm.h). Called by models. Thread-safe; the running statistics are written.
#pragma once

#include <ATen/core/Tensor.h>

namespace tanren {

struct BatchNormCall {
  at::Tensor weight, bias;               // [channels]
  at::Tensor running_mean, running_var;  // [channels], updated
  double momentum = 0.1, eps = 1e-5;     // momentum: share of this batch in the running statistics
  bool training = true;                  // else it normalises by the running statistics
  bool relu = false;                     // of the result, residual included
  at::Tensor residual = {};              // as x, added to the normalised; undefined: none
};

// x [n, channels, h, w] → the same shape, layout and dtype: bf16 beside fp32 parameters, or theirs.
// Differentiable in x, weight, bias and residual; in training on the CPU in channels-last once.
at::Tensor batch_norm(const at::Tensor& x, const BatchNormCall& call);

}  // namespace tanren
