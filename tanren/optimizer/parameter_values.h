// What a parameter is updated with by its group and its layer. Used by the optimizers, where parts of a
// model get one each, and where their state meets torch's parameter groups.
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

// ConfigError unless each pattern of groups, and of adamw_parameters and fp32_state where they are not the
// defaults, matches one of `model`: all parameters, whoever trains or updates them.
void check_patterns(const OptimizerOptions& options, const std::vector<NamedParameter>& model);

// The options for an optimizer of a part of `model`, whose patterns and layers are meant of the whole: each
// parameter of the part with the values that it has in the whole. ConfigError for a pattern that matches
// nothing in `model`.
OptimizerOptions options_of_part(const OptimizerOptions& options,
                                 const std::vector<NamedParameter>& part,
                                 const std::vector<NamedParameter>& model);

}  // namespace tanren
