#include "tanren/ops/global_norm.h"

#include "tanren/ops/sums_of_squares.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tanren {

namespace {

double norm_on_cpu(at::TensorList gradients) {
  std::vector<at::Tensor> dense;
  std::vector<FlatRange> ranges;
  for (const at::Tensor& gradient : gradients) {
    ranges.push_back({.tensor = dense.size(), .begin = 0, .size = gradient.numel()});
    dense.push_back(gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous());
  }
  double sum = 0;
  for (const double squares : sums_of_squares(dense, ranges, at::kCPU).on_host) sum += squares;
  return std::sqrt(sum);
}

// In double.
at::Tensor norm_on_device(at::TensorList gradients) {
  const at::NoGradGuard no_grad;
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2, at::kDouble)), 2);
}

}  // namespace

at::Tensor global_norm(at::TensorList gradients) {
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  const bool narrow = std::any_of(gradients.begin(), gradients.end(),
                                  [](const at::Tensor& one) { return one.element_size() < 4; });
  const auto dtype = narrow ? at::kFloat : gradients[0].scalar_type();
  if (!gradients[0].is_cpu()) return norm_on_device(gradients).to(dtype);
  double norm = norm_on_cpu(gradients);
  if (dtype == at::kFloat && norm > std::numeric_limits<float>::max()) {
    norm = std::numeric_limits<double>::infinity();  // at::full refuses what does not fit
  }
  return at::full({}, norm, gradients[0].options().dtype(dtype).requires_grad(false));
}

double exact_norm(at::TensorList gradients) {
  if (gradients.empty()) return 0;
  if (gradients[0].is_cpu()) return norm_on_cpu(gradients);
  return norm_on_device(gradients).item<double>();
}

}  // namespace tanren
