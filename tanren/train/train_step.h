// The step: one update of one phase over one global batch. Order is the algorithm: accumulate →
// reduce over ranks → unscale and measure → agree and read (the one device read) → judge all
// objectives → apply or undo each → rescale → share buffers over ranks → average weights → advance.
// Written once.
#pragma once

#include "tanren/base/report.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <optional>

namespace tanren {

// Runs the update. An objective whose verdict is `skip` or `halt` is left as it was: weights,
// optimizer state, step counter and buffers. Advances run.attempt and the data cursor. Empty if a
// stop was requested between microsteps: then nothing has changed at all. Several ranks finish the
// window instead, and the report says that some rank was asked to stop. If ranks share the update,
// call run.settle() before anything but the next update.
std::optional<StepReport> update(Phase& phase, RunState& run, const Parts& parts,
                                 const GlobalBatch& batch);

}  // namespace tanren
