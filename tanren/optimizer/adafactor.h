// Adafactor (Shazeer & Stern, 2018) as torch.optim.Adafactor; with relative_step off as
// transformers.optimization.Adafactor with scale_parameter and relative_step off. The second moment
// of a tensor is kept by rows and columns of its last two dimensions. Called by make_optimizer.
#pragma once

#include "tanren/optimizer/optimizer.h"

namespace tanren {

std::unique_ptr<Optimizer> make_adafactor(const OptimizerOptions& options,
                                          const std::vector<NamedParameter>& parameters);

}  // namespace tanren
