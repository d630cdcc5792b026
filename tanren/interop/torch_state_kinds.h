// The optimizers whose state can be exchanged between torch and tanren. Used only by torch_state's
// two files.
#pragma once

#include "tanren/config/run_config.h"

#include <string>
#include <vector>

namespace tanren {

// ConfigError unless the state of this kind has the same form in both.
void check_travels(const std::string& kind);

// The state that the optimizer keeps for each parameter, under names that torch shares. `options`
// must come from with_defaults().
std::vector<std::string> kept_by(const OptimizerOptions& options);

}  // namespace tanren
