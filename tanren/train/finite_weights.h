// Whether a run's weights are worth keeping. Called by train_loop before it writes a checkpoint.
#pragma once

#include "tanren/train/run_state.h"

namespace tanren {

// False where an update left a trained weight that is not finite, or an average of one: no later
// update mends it. Constants, such as a mask of -inf, are no weights. The same on every rank, as the
// weights are. One device read.
bool has_finite_weights(const RunState& run);

}  // namespace tanren
