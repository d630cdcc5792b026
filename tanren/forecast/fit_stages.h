// Fits a run in stages to the available memory: predicts every stage, and cuts the model elsewhere
// if a stage does not fit. Called by fit_memory.
#pragma once

#include "tanren/forecast/fit_memory.h"

namespace tanren {

// The plan of input.config with the peaks of its stages. If one does not fit and the config leaves
// parallel.cut_at open, the cut is the fastest of those that fit. ConfigError if none does, with
// the stage, what it lacks and changes that would help; on an accelerator only if the limit was
// asked for.
Fitted fit_stages(const FitInput& input);

}  // namespace tanren
