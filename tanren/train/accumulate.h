// Accumulates the gradients of one update: forward and backward over one global batch (a window).
// Called by the step and by the search for a loss scale.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/loss_meter.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Afterwards the gradients of the objectives whose turn it is are sums over ranks, and `losses` has
// the terms. Returns false if a stop was requested between microsteps; only a run of one rank stops
// there, and only in the first phase of an update. Several ranks finish the window.
bool accumulate(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch,
                LossMeter& losses);

// Makes the phase's reducer if there are several ranks and the phase has none yet. Throws Error if
// the objectives were built for another rank, because a norm would then count gradients twice or
// not at all.
void connect_reducer(Phase& phase, const Ranks& ranks);

}  // namespace tanren
