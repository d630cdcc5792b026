// The steps of a run for quantization-aware training at its beginning and at its end. Internal to
// run/.
#pragma once

#include "tanren/run/prepare.h"
#include "tanren/run/run.h"

#include <functional>

namespace tanren {

// Calls begin_quantized (train/quantized_training.h). Adds its line to the plan and, if `tells`, to
// the log.
void begin_quantized_run(Prepared& prepared, bool tells);

// Writes the 8-bit model of a finished run into `folder` and sets output.quantized. Calls
// `write_summary` before, with an output.summary.unwritten that makes the next start write the
// model, and again after it. A failure from then on loses only the 8-bit model: `unwritten` says
// why. Otherwise `unwritten` is empty.
void write_quantized(const Prepared& prepared, const RunState& state, const Parts& parts,
                     const std::filesystem::path& folder, RunOutput& output,
                     const std::function<void()>& write_summary);

}  // namespace tanren
