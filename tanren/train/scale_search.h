// precision.initial_scale = "auto": the loss scale that a run begins with. Called by the step.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Finds, for each objective in turn that has no scale yet, the largest power of two whose window
// stays finite, by bisection over windows of `batch`, and halves it once for headroom. The windows
// are the same for all of them. Changes nothing but the scales. If an objective's loss is not
// finite, or if it counts nothing, its scale does not change either, and the next window is
// searched. False if a stop was requested in between.
bool find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch);

}  // namespace tanren
