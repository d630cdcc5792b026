// Smaller models of a config's kind, for the advice of a plan that memory does not allow. Called by
// fit_memory.
#pragma once

#include "tanren/config/run_config.h"

#include <string>
#include <utility>
#include <vector>

namespace tanren {

// `config` with smaller models, the largest first, each with the key that makes it so: the smaller
// presets of its family, or half the width, a quarter and so on. Empty if the weights have a size.
std::vector<std::pair<std::string, RunConfig>> smaller_models(const RunConfig& config);

}  // namespace tanren
