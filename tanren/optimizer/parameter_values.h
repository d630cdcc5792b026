// The learning-rate scale and weight decay that a parameter gets from its group and its layer. Used
// by the optimizers, where each part of a model gets its own optimizer, and where optimizer state
// is converted to or from torch's parameter groups.
#pragma once

#include "tanren/optimizer/optimizer.h"

#include <vector>

namespace tanren {

struct ParameterValues {
  double learning_rate_scale = 1;
  double weight_decay = 0;
  bool operator==(const ParameterValues&) const = default;
};

// One entry per parameter; `options` must come from with_defaults. ConfigError if a layer's pattern
// matches no parameter.
std::vector<ParameterValues> parameter_values(const OptimizerOptions& options,
                                              const std::vector<NamedParameter>& parameters);

// ConfigError unless each pattern of groups, and of adamw_parameters and fp32_state if these are
// not the defaults, matches one of `model`: all parameters, whether or not this optimizer updates
// them.
void check_patterns(const OptimizerOptions& options, const std::vector<NamedParameter>& model);

// The options for an optimizer of a part of `model`. Patterns and layers apply to the whole model:
// each parameter of the part keeps the values that it has in the whole. `own_layers`: layers are
// counted among the part's parameters alone. ConfigError for a pattern that matches nothing in
// `model`.
OptimizerOptions options_of_part(const OptimizerOptions& options,
                                 const std::vector<NamedParameter>& part,
                                 const std::vector<NamedParameter>& model, bool own_layers = false);

}  // namespace tanren
