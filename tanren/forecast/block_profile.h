// The outermost blocks (blocks/block.h) of a model in the order of its forward, with what a cut
// into stages needs to know of each. Found by one dry training forward (dry/dry_scope.h): no weight
// is allocated. Made for plan/pipeline_cut, which chooses and checks cuts.
//
// Note [Where a model can be cut]
// A later stage does not run the blocks of the stages before it, but all code between blocks. It
// gets one tensor: the output of the last block that it does not run. So a cut after a block is
// possible if, after it, no operator reads another tensor that was made in a block before the cut,
// and if no code outside of blocks reads such a tensor in the part before the cut. Terms are read
// after the last block. Every stage has batches, parameters, buffers and the tensors that code
// outside of blocks computes from them. If a block writes to a buffer or field, the buffer or field
// then counts as made in that block. Reads are those of libtorch's operators and of kernels under
// an OperatorRecord; code that only reads a tensor's shape is not seen. Writes are those that an
// operator's schema declares, which does not include the running statistics of a norm. Blocks that
// share such statistics, or another buffer that the forward changes, stay in one stage.
#pragma once

#include "tanren/base/task.h"
#include "tanren/plan/pipeline_cut.h"
#include "tanren/plan/plan.h"

#include <functional>

namespace tanren {

// The blocks of the task's first phase, on samples like those of `batch` (at least one), in the
// plan's precision and without recomputation. Work is in multiply-adds. The work and memory of code
// between blocks belong to the block after it, and those of the loss to the last block. A block's
// weights are those that it reads, even if another block reads them too. Bytes of state are those
// of one rank without sharding. The result has no blocks if the model names none. Error if the
// model needs values, which a dry run does not have.
ModelBlocks block_profile(const Plan& given, const std::function<Task()>& make_task,
                          const Batch& batch);

}  // namespace tanren
