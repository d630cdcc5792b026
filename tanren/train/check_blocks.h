// Checks that the blocks which a plan names exist. The first forward of each phase calls it. The
// plan's dry run already makes that forward; for a model that cannot be run dry, the run makes it.
// A run in stages is checked when it is built, because no stage makes a whole forward.
#pragma once

#include "tanren/blocks/block_trail.h"
#include "tanren/plan/plan.h"

#include <string>
#include <vector>

namespace tanren {

// Throws ConfigError, listing the existing blocks, for a pattern of memory.recompute or
// memory.offload that matches no block of a whole forward. A block can be recomputed only if it was
// called with its input (block.h).
void check_blocks(const MemoryPlan& plan, const BlockPassages& blocks);
// The same for a model with these outermost blocks. A pattern that may match a block inside one of
// them is not checked.
void check_outermost_blocks(const MemoryPlan& plan, const std::vector<std::string>& blocks);

}  // namespace tanren
