// What a run does for quantisation-aware training at its beginning and at its end. Internal to run/.
#pragma once

#include "tanren/run/prepare.h"
#include "tanren/run/run.h"

#include <functional>

namespace tanren {

// begin_quantized (train/quantized_training.h), whose line the plan gets and, if `tells`, the log.
void begin_quantized_run(Prepared& prepared, bool tells);

// What the summary of a finished run says (Summary::unwritten) before write_quantized, so that the
// next start writes the 8-bit model if this one is killed.
constexpr const char* kNotYetWritten =
    "[run] the 8-bit model is not written yet; start the run again to write it";

// Writes the 8-bit model of a finished run into `folder`, sets output.quantized and then calls
// `write_summary`. What fails costs that model alone: output.summary.unwritten then says why, and
// is empty if nothing does.
void write_quantized(const Prepared& prepared, const RunState& state, const Parts& parts,
                     const std::filesystem::path& folder, RunOutput& output,
                     const std::function<void()>& write_summary);

}  // namespace tanren
