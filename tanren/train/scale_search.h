// precision.initial_scale = "auto": the loss scale that a run begins with. Called by the step.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Searches a scale for each objective that takes part in this update and has none yet: by bisection
// the largest power of two with which a window of `batch` stays finite, halved once for headroom.
// All objectives are searched with the same windows. Nothing changes but the scales. An objective
// whose loss is not finite, or that counts nothing, keeps its scale; its search is repeated with
// the next batch. False if a stop was requested in between.
bool find_initial_scale(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch);

}  // namespace tanren
