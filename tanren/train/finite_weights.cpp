#include "tanren/train/finite_weights.h"

#include "tanren/base/device_reads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

Values worst_of(double low, double high) {
  if (std::isnan(low) || std::isnan(high)) return Values::nan;
  return std::isinf(low) || std::isinf(high) ? Values::infinite : Values::finite;
}

}  // namespace

std::vector<Values> worst_values(const RunState& run) {
  run.settle();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> bounds;  // lowest and highest of each; one read for all
  std::vector<Values> values;
  std::vector<size_t> places;  // in `values`, of each two bounds
  const auto add = [&](const at::Tensor* tensor) {
    values.push_back(Values::finite);
    if (tensor == nullptr || tensor->numel() == 0 || !tensor->is_floating_point()) return;
    const auto [low, high] = at::aminmax(tensor->detach());  // NaN where there is one
    bounds.push_back(low.to(at::kDouble));
    bounds.push_back(high.to(at::kDouble));
    places.push_back(values.size() - 1);
  };
  for (const auto& phase : run.phases) {
    for (const auto& objective : phase.objectives) {
      const TensorMap averaged =
          objective.average ? objective.average->state().tensors : TensorMap();
      for (const auto& parameter : objective.parameters) {
        add(&parameter.tensor);
        add(averaged.find(parameter.name));
      }
    }
  }
  if (bounds.empty()) return values;
  const auto read = read_to_host(at::stack(bounds));
  for (size_t i = 0; i < places.size(); ++i) {
    values[places[i]] = worst_of(read[2 * i], read[2 * i + 1]);
  }
  return values;
}

bool is_ruined(const std::vector<Values>& at_start, const std::vector<Values>& now) {
  return !std::equal(now.begin(), now.end(), at_start.begin(), at_start.end(),
                     [](Values after, Values before) { return after <= before; });
}

}  // namespace tanren
