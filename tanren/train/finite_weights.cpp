#include "tanren/train/finite_weights.h"

#include "tanren/base/device_reads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tanren {

bool has_finite_weights(const RunState& run) {
  run.settle();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> bounds;  // one read for all
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.numel() == 0 || !tensor.is_floating_point()) return;
    const auto [low, high] = at::aminmax(tensor.detach());
    bounds.push_back(low.to(at::kDouble));
    bounds.push_back(high.to(at::kDouble));
  };
  for (const auto& phase : run.phases) {
    for (const auto& objective : phase.objectives) {
      const TensorMap averaged =
          objective.average ? objective.average->state().tensors : TensorMap();
      for (const auto& parameter : objective.parameters) {
        add(parameter.tensor);
        if (const auto* average = averaged.find(parameter.name)) add(*average);
      }
    }
  }
  if (bounds.empty()) return true;
  const auto values = read_to_host(at::stack(bounds));
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return std::isfinite(value); });
}

}  // namespace tanren
