// What a run does for quantisation-aware training at its beginning and at its end. Internal to
// run/.
#pragma once

#include "tanren/run/prepare.h"
#include "tanren/run/run.h"

#include <functional>

namespace tanren {

// begin_quantized (train/quantized_training.h), whose line the plan gets and, if `tells`, the log.
void begin_quantized_run(Prepared& prepared, bool tells);

// Writes the 8-bit model of a finished run into `folder` and sets output.quantized. Calls
// `write_summary` before that, with an output.summary.unwritten that makes the next start write the
// model, and again after it. What fails from then on costs the model alone: `unwritten` then says
// why, and is empty if nothing does.
void write_quantized(const Prepared& prepared, const RunState& state, const Parts& parts,
                     const std::filesystem::path& folder, RunOutput& output,
                     const std::function<void()>& write_summary);

}  // namespace tanren
