// AdamW (Loshchilov & Hutter, 2019) as torch.optim.AdamW, over at::_fused_adamw_.
// Called by make_optimizer.
#pragma once

#include "tanren/optimizer/optimizer.h"

namespace tanren {

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options,
                                      const std::vector<NamedParameter>& parameters);

}  // namespace tanren
