// AdamW and Adam with moments of one byte (8bit) or two bytes (bf16) per element instead of four.
// Small parameters, those that optimizer.fp32_state names, and those that are not fp32 keep fp32
// moments. Made by make_optimizer alone.
#pragma once

#include "tanren/optimizer/element_optimizer.h"
#include "tanren/optimizer/group.h"

#include <memory>
#include <vector>

namespace tanren {

// Moments are `<name>.exp_avg` and `.exp_avg_sq` in bf16, or their `_codes` (uint8), with the
// parameter's shape and strides, and `_scales` (fp32, one per 256 elements in memory order). If the
// memory order is not the shape's order, the value `<name>.order` names it (ops/memory_order.h).
// load() also takes fp32 moments and blocks of another order, and packs them again.
std::unique_ptr<Optimizer> make_packed_adamw(const OptimizerOptions& options,
                                             const std::vector<NamedParameter>& parameters,
                                             Way way = Way::automatic);

}  // namespace tanren
