// precision.initial_scale = "auto": the loss scale that a run begins with. Called by the step.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// The largest power of two whose window stays finite, halved once for headroom, by bisection over a
// window. Leaves no trace but the scale; and not even that where the window's loss is not finite, or of
// nothing: then the next one is searched. False if a stop was requested in between.
bool find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch);

}  // namespace tanren
