// Which values an evaluation measures under a config, and whether lower is better for a metric.
// Torch-free. Used by the checks, by planning (keep best, early stop) and by code that ranks
// evaluations.
#pragma once

#include "tanren/config/run_config.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The values that a metric key may name: "loss", and evaluate.metrics without confusion_matrix,
// which is no single number.
std::vector<std::string> measured_values(const EvaluateOptions& options);

// Modes "min" and "max" decide alone; "auto" looks up the metric's name (base/metric_names.h).
// Empty if the name is not known there.
std::optional<bool> lower_is_better(const std::string& metric, const std::string& mode);

}  // namespace tanren
