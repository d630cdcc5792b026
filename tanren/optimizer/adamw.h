// AdamW (Loshchilov & Hutter, 2019) as torch.optim.AdamW, over at::_fused_adamw_, and Adam (Kingma
// & Ba, 2015) as torch.optim.Adam, over at::_fused_adam_. Called by make_optimizer and Muon.
#pragma once

#include "tanren/optimizer/group.h"
#include "tanren/optimizer/optimizer.h"

namespace tanren {

// Weight decay is decoupled unless options.kind is "adam", where it is added to the gradient.
std::unique_ptr<TensorOptimizer> make_adamw(const OptimizerOptions& options,
                                            std::vector<Group> groups);

}  // namespace tanren
