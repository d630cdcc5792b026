// Whether two configs are the same run: what a run folder asks before it goes on.
#pragma once

#include "tanren/config/run_config.h"

#include <set>
#include <string>
#include <vector>

namespace tanren {

// "key: before → now" for each key that defines the run and differs. run.steps and run.epochs may
// grow; keys that change nothing that is trained are passed over.
std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now);

// Keys whose value is not the default.
std::set<std::string> changed_keys(const RunConfig& config);

}  // namespace tanren
