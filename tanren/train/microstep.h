// One forward and backward, as a transaction: if memory runs out, the missing part is done in
// smaller microsteps, and nothing else changes. Invariant: after it returns, each parameter's
// gradient has grown by exactly its share of every sample of the piece, once. Called by accumulate.
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
  // Called for each failure that is being recovered from.
  std::function<void(const Incident&)> incident;
};

// Accumulates the gradients of `piece` (on the run's device) into the phase's objectives and adds
// its terms to `losses`, microstep by microstep, in sizes that Parts::recovery allows. MemoryError
// if the recovery fails. Returns false if a stop was requested between microsteps. Only a run of
// one rank stops there, and only in an update's first phase; several ranks finish the window.
// A run in stages makes the window of this rank's stage (pipeline.h).
// Several ranks send gradients from the last microstep on; phase.reducer must finish the sums.
bool accumulate_piece(Phase& phase, const Batch& piece, const StepContext& context);

}  // namespace tanren
