// Checks that the blocks which a plan names are there. Called on the first forward of each phase,
// which the plan's dry run makes already; the run makes it for a model that cannot be run dry. A
// run in stages, none of which makes a whole forward, is checked when it is built.
#pragma once

#include "tanren/blocks/block_trail.h"
#include "tanren/plan/plan.h"

#include <string>
#include <vector>

namespace tanren {

// ConfigError, with the blocks that there are, for a pattern of memory.recompute or memory.offload
// that matches no block of a whole forward. What is recomputed was called with its input (block.h).
void check_blocks(const MemoryPlan& plan, const BlockPassages& blocks);
// The same for a model with these outermost blocks. A pattern that may match a block inside one of
// them is not checked.
void check_outermost_blocks(const MemoryPlan& plan, const std::vector<std::string>& blocks);

}  // namespace tanren
