// Advice for a model that does not fit: how many stages of it would. Called by fit_memory.
#pragma once

#include "tanren/forecast/fit_memory.h"

#include <string>

namespace tanren {

// "parallel.pipeline = 2 … on 4 ranks …": the least of 2, 4, 8 and the number of ranks that fits as
// stages, each into the limit of a rank of its own. Tried by dry runs of the config with that key
// on the ranks that there are (of one process: on as many as stages); if memory.recompute is open,
// with all blocks recomputed where it must be. Empty: none of them fits, ranks in threads share the
// memory, the model's blocks are not known, or the run cannot have stages.
std::string fitting_stages(const FitInput& input, const Tried& least);

}  // namespace tanren
