// Stochastic gradient descent with momentum and Nesterov, as torch.optim.SGD, over at::_fused_sgd_.
// Called by make_optimizer.
#pragma once

#include "tanren/optimizer/optimizer.h"

namespace tanren {

// ConfigError for nesterov without momentum, or with dampening (as torch).
std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options,
                                    const std::vector<NamedParameter>& parameters);

}  // namespace tanren
