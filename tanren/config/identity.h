// Whether two configs are the same run: what a run folder asks before it goes on, and ranks before they
// begin.
#pragma once

#include "tanren/config/run_config.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// "key: before → now" for each key that defines the run and differs. run.steps and run.epochs may
// grow; keys that change nothing that is trained are passed over.
std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now);

// Key and value of what every rank of a run must have alike. What a machine may have its own way is
// left out: devices, threads, memory, where the data lie, what is shown.
std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config);

// Keys whose value is not the default.
std::set<std::string> changed_keys(const RunConfig& config);

}  // namespace tanren
