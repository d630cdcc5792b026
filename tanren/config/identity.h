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
// grow; keys that change nothing that is trained are passed over (those of evaluations too, where none
// decides over the run), and so are those of `requested` that may change on request.
std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested = {});

// One key's values as TOML text ("not set" where there is none).
struct KeyChange {
  std::string key, before, now;
};

// The keys that may change on request (rate, schedule, clip, precision; not to fp64 or from it) and
// differ.
std::vector<KeyChange> changes_on_request(const RunConfig& before, const RunConfig& now);

// Whether what an evaluation finds changes how the run goes on. A run whose evaluations decide nothing may
// be evaluated in another way and on other data, even if evaluations decided before.
bool evaluations_decide(const RunConfig& config);

// Gives `config` the values that `from` has of `keys`.
void take_keys(RunConfig& config, const RunConfig& from, const std::vector<std::string>& keys);

// Key and value of what every rank of a run must have alike. What a machine may have its own way is
// left out: devices, threads, memory, where the data lie, what is shown.
std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config);

// Keys whose value is not the default.
std::set<std::string> changed_keys(const RunConfig& config);

}  // namespace tanren
