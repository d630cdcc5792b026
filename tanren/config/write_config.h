// RunConfig → TOML: what the run folder keeps. Reads back to an equal config.
#pragma once

#include "tanren/config/run_config.h"

#include <string>

namespace tanren {

// Every key with its value; optional keys that are not set are left out, keys that were not asked
// for are marked as defaults.
std::string to_toml(const RunConfig& config);

}  // namespace tanren
