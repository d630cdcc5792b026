// Clipping by the global norm and by value, as torch.nn.utils.clip_grad_norm_ and
// clip_grad_value_, without reading the device. If both are used, clip by the norm first: then both
// bounds hold, and the norm is that of the raw gradients, which is measured anyway. Called between
// unscaling and the optimizer, by train_step and user-written loops.
#pragma once

#include "tanren/ops/global_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBody.h>

namespace tanren {

// Scales the gradients in place by clip_factor(norm, max_norm), on the device, and returns their
// global_norm() before scaling. As in torch, a NaN norm makes every gradient NaN; an infinite norm
// makes infinite gradients NaN and all others 0.
at::Tensor clip_norm_(at::TensorList gradients, double max_norm);
// min(1, max_norm / (norm + 1e-6)); NaN stays NaN.
double clip_factor(double norm, double max_norm);
// Brings every element into [-max_value, max_value], in place; NaN stays NaN.
void clip_value_(at::TensorList gradients, double max_value);

}  // namespace tanren
