// The step: one update over one global batch. Each phase with an objective in turn: accumulate →
// reduce over ranks → unscale and measure → agree and read (the phase's one device read) → judge
// all its objectives → apply or undo each → rescale → share buffers over ranks → average weights.
// Then the data cursor advances. Written once.
#pragma once

#include "tanren/base/report.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <optional>

namespace tanren {

// Runs the update. An objective whose verdict is `skip` or `halt` is left as it was: weights,
// optimizer state, step counter and buffers. If one of a phase halts, the whole phase is left as it
// was, and later phases are not run; what earlier phases applied stays. Advances run.attempt and
// the data cursor, also before an error in a later phase. Empty if a stop was requested between
// microsteps of the first phase that is run: then nothing has changed at all. Several ranks finish
// the window instead, and the report says that some rank was asked to stop. If ranks share the
// update, call run.settle() before anything but the next update.
std::optional<StepReport> update(RunState& run, const Parts& parts, const GlobalBatch& batch);

}  // namespace tanren
