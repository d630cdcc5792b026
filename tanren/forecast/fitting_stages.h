// Advice for a model that does not fit: the number of stages with which it would fit. Called by
// fit_memory.
#pragma once

#include "tanren/forecast/fit_memory.h"

#include <string>

namespace tanren {

// Text such as "parallel.pipeline = 2 … on 4 ranks …" with the smallest number of stages that
// fits, if each stage has the memory limit of one rank. Tries 2, 4, 8 and the number of ranks by
// dry runs of the config with that key, on the existing ranks (for one process: on one rank per
// stage). If the config leaves memory.recompute open, also tries to recompute all blocks. Empty if
// none fits, if ranks in threads share the memory, if the model's blocks are not known, or if the
// run cannot have stages.
std::string fitting_stages(const FitInput& input, const Tried& least);

}  // namespace tanren
