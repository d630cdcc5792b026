#include "tanren/config/metric_mode.h"

#include "tanren/base/metric_names.h"

namespace tanren {

std::vector<std::string> measured_values(const EvaluateOptions& options) {
  std::vector<std::string> values = {"loss"};
  for (const auto& metric : options.metrics) {
    if (metric != "confusion_matrix") values.push_back(metric);  // not a single number
  }
  return values;
}

std::optional<bool> lower_is_better(const std::string& metric, const std::string& mode) {
  return mode == "auto" ? lower_is_better(metric) : mode == "min";
}

}  // namespace tanren
