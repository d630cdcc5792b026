// The outermost blocks (blocks/block.h) of a model in the order of its forward, with what a cut
// into stages needs to know of each. Found by one dry training forward (dry/dry_scope.h): no weight
// is allocated. Made for plan/pipeline_cut, which chooses and checks cuts.
//
// Note [Where a model can be cut]
// A later stage does not run the blocks of the stages before it, but all code between blocks. It
// gets one tensor: the output of the last block that it does not run. So a cut after a block is
// possible if, after it, no operator reads another tensor that was made in a block before the cut,
// and if no code outside of blocks reads such a tensor in the part before the cut. Terms are read
// after the last block. Batches, parameters, buffers, and what code outside of blocks makes of
// them, are there in every stage; a buffer or field that a block writes to counts from then on as
// made in that block. Reads are those of libtorch's operators and of kernels under an
// OperatorRecord; code that asks a tensor for its shape alone is not seen. Writes are those that an
// operator's schema declares, which leaves out the running statistics of a norm; blocks that share
// one of these, or another buffer that the forward changes, stay in one stage.
#pragma once

#include "tanren/base/task.h"
#include "tanren/plan/pipeline_cut.h"
#include "tanren/plan/plan.h"

#include <functional>

namespace tanren {

// The blocks of the task's first phase, on samples like those of `batch` (at least one), in the
// plan's precision and without recomputation. Work is in multiply-adds; what code between blocks
// does and keeps belongs to the block after it, the loss to the last block. A block's weights are
// those that it reads, also where another block reads them. Bytes of state are those of one rank
// that shards nothing. No blocks: the model names none. Error if the model needs values, which a
// dry run does not have.
ModelBlocks block_profile(const Plan& given, const std::function<Task()>& make_task,
                          const Batch& batch);

}  // namespace tanren
