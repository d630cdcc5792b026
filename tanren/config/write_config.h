// RunConfig → TOML, as kept in the run folder: reading it back gives an equal config. And values of
// --set as lines of a config file.
#pragma once

#include "tanren/config/run_config.h"

#include <string>
#include <utility>
#include <vector>

namespace tanren {

// Every key with its value. An objective's key is left out if it is inherited from the run
// (inherited_keys). Optional keys that are not set are left out; keys that the user did not give
// are marked as defaults.
std::string to_toml(const RunConfig& config);

// What --set key=value would write for each pair, as sections with their keys, in order. `config`
// knows the objectives that it names. A key that "none" unsets is a comment.
std::string toml_of_sets(RunConfig config,
                         const std::vector<std::pair<std::string, std::string>>& sets);

}  // namespace tanren
