// What a run does for quantisation-aware training at its beginning and at its end. Internal to run/.
#pragma once

#include "tanren/run/prepare.h"
#include "tanren/run/run.h"

namespace tanren {

// begin_quantized (train/quantized_training.h), whose line the plan gets and, if `tells`, the log.
void begin_quantized_run(Prepared& prepared, bool tells);

// Writes the 8-bit model of a finished run into `folder` and sets output.quantized. What fails
// costs that model alone: output.summary.unwritten then says why.
void write_quantized(const Prepared& prepared, const RunState& state, const Parts& parts,
                     const std::filesystem::path& folder, RunOutput& output);

}  // namespace tanren
