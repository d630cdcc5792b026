// What a parameter is updated with by its group and its layer. Used by the optimizers, and where their
// state meets torch's parameter groups.
#pragma once

#include "tanren/optimizer/optimizer.h"

#include <vector>

namespace tanren {

struct ParameterValues {
  double learning_rate_scale = 1;
  double weight_decay = 0;
  bool operator==(const ParameterValues&) const = default;
};

// One entry per parameter; `options` as with_defaults gives them. ConfigError where a pattern of a
// layer matches none.
std::vector<ParameterValues> parameter_values(const OptimizerOptions& options,
                                              const std::vector<NamedParameter>& parameters);

}  // namespace tanren
