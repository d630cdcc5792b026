#include "tanren/optimizer/clip.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace tanren {

at::Tensor clip_norm_(at::TensorList gradients, double max_norm) {
  const at::NoGradGuard no_grad;
  at::Tensor norm = global_norm(gradients);
  if (gradients.empty()) return norm;
  const at::Tensor factor = at::reciprocal(norm + 1e-6).mul_(max_norm).clamp_max_(1.0);
  at::_foreach_mul_(gradients, factor);
  return norm;
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

void clip_value_(at::TensorList gradients, double max_value) {
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  constexpr double kLargestHalf = 65504;  // fp16 needs no larger bound, and torch refuses one
  const bool has_half = std::any_of(gradients.begin(), gradients.end(), [](const at::Tensor& one) {
    return one.scalar_type() == at::kHalf;
  });
  if (has_half) max_value = std::min(max_value, kLargestHalf);
  at::_foreach_clamp_min_(gradients, -max_value);
  at::_foreach_clamp_max_(gradients, max_value);
}

}  // namespace tanren
