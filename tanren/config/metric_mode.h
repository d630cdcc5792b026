// What an evaluation measures under a config, and whether a low value of it is good. Torch-free;
// used by the checks, by planning (keep best, early stop) and by whoever ranks evaluations.
#pragma once

#include "tanren/config/run_config.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The values that a metric of an evaluation may be named by: "loss", and evaluate.metrics.
std::vector<std::string> measured_values(const EvaluateOptions& options);

// Modes "min" and "max" say it themselves, "auto" asks the metric's name (base/metric_names.h).
// Empty where that does not know.
std::optional<bool> lower_is_better(const std::string& metric, const std::string& mode);

}  // namespace tanren
