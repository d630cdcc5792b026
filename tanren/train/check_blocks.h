// Checks that the blocks which a plan names are there. Called on the first forward of each phase,
// which the plan's dry run makes already; the run makes it for a model that cannot be run dry.
#pragma once

#include "tanren/blocks/block_trail.h"
#include "tanren/plan/plan.h"

namespace tanren {

// ConfigError, with the blocks that there are, for a pattern of memory.recompute or memory.offload
// that matches no block of a whole forward. What is recomputed was called with its input (block.h).
void check_blocks(const MemoryPlan& plan, const BlockPassages& blocks);

}  // namespace tanren
