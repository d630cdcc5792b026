// One forward + backward, as a transaction: running out of memory leaves no trace but smaller
// microsteps for what is missing of it. Invariant: after it returns, each parameter's gradient has
// grown by exactly its share of every sample of the piece, once. Called by train_step.
#pragma once

#include "tanren/data/loader.h"
#include "tanren/train/loss_meter.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <functional>

namespace tanren {

struct StepContext {
  RunState& run;
  const Parts& parts;
  const GlobalBatch& batch;
  LossMeter& losses;
  // Told of each failure that is being recovered from.
  std::function<void(const Incident&)> incident;
};

// Accumulates the gradients of `piece` (on the run's device) into the phase's objectives and adds its
// terms to `losses`, microstep by microstep, as Parts::recovery says. MemoryError where that fails.
// False if a stop was requested in between, and there are no other ranks to finish the window with.
// On several ranks the gradients go to the others from the last microstep on; finish them with
// phase.reducer.
bool accumulate_piece(Phase& phase, const Batch& piece, const StepContext& context);

}  // namespace tanren
