// Adafactor (Shazeer & Stern, 2018) as torch.optim.Adafactor. With relative_step off it is
// transformers.optimization.Adafactor with scale_parameter and relative_step off. A tensor's second
// moment is kept by rows and columns of its last two dimensions. Called by make_optimizer.
#pragma once

#include "tanren/optimizer/optimizer.h"

namespace tanren {

std::unique_ptr<Optimizer> make_adafactor(const OptimizerOptions& options,
                                          const std::vector<NamedParameter>& parameters);

}  // namespace tanren
