// RunConfig → TOML, as kept in the run folder. Reading it back gives an equal config.
#pragma once

#include "tanren/config/run_config.h"

#include <string>

namespace tanren {

// Every key with its value; of an objective's keys those without the run's value. Optional keys
// that are not set are left out; keys that the user did not give are marked as defaults.
std::string to_toml(const RunConfig& config);

}  // namespace tanren
