#include "tanren/train/finite_weights.h"

#include "tanren/base/device_reads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tanren {

namespace {

Values worst_of(double low, double high) {
  if (std::isnan(low) || std::isnan(high)) return Values::nan;
  return std::isinf(low) || std::isinf(high) ? Values::infinite : Values::finite;
}

}  // namespace

std::map<std::string, Values> worst_values(const RunState& run) {
  run.settle();
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<at::Tensor> bounds;  // lowest and highest of each; one read for all
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.numel() == 0 || !tensor.is_floating_point()) return;
    const auto [low, high] = at::aminmax(tensor.detach());  // NaN if the tensor has one
    bounds.push_back(low.to(at::kDouble));
    bounds.push_back(high.to(at::kDouble));
    names.push_back(name);
  };
  for (const auto& item : run.task.module->named_parameters()) {
    if (run.holds(item.key())) add(item.key(), item.value());
  }
  for (const auto& [name, tensor] : run.average_state().tensors) add("average of " + name, tensor);
  std::map<std::string, Values> values;
  if (bounds.empty()) return values;
  const auto read = read_to_host(at::stack(bounds));
  for (size_t i = 0; i < names.size(); ++i) {
    values[names[i]] = worst_of(read[2 * i], read[2 * i + 1]);
  }
  return values;
}

bool is_ruined(const std::map<std::string, Values>& at_start,
               const std::map<std::string, Values>& now) {
  return std::any_of(now.begin(), now.end(), [&](const auto& named) {
    const auto before = at_start.find(named.first);
    return named.second > (before == at_start.end() ? Values::finite : before->second);
  });
}

}  // namespace tanren
