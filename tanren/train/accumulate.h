// The window of an update: forward and backward over one global batch. Called by the step and by the
// search of a loss scale.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/loss_meter.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// The gradients are then the sum over ranks, and `losses` has the terms. False if a stop was requested in
// between, and there are no other ranks to finish the window with.
bool accumulate(Phase& phase, RunState& run, const Parts& parts, const GlobalBatch& batch,
                LossMeter& losses);

// Makes the phase's reducer, where there are several ranks and it has none.
void connect_reducer(Phase& phase, const DataParallel& parallel);

}  // namespace tanren
