// Whether two configs are the same run: checked before a run resumes in its folder, and by ranks
// before they start.
#pragma once

#include "tanren/config/run_config.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// "key: before → now" for each key that defines the run and differs. A key of an objective that one
// of them alone has differs, too. run.steps and run.epochs may
// grow. Skipped are keys that do not change training, keys of evaluations if no evaluation decides
// over the run, and keys in `requested` that may change on request.
std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested = {});

// One key's values as TOML text ("not set" if there is none).
struct KeyChange {
  std::string key, before, now;
};

// The same as values: all that a run cannot change when it resumes, and a fork can.
std::vector<KeyChange> defining_changes(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested = {});

// The same of every key that differs, also of those that any run may change.
std::vector<KeyChange> all_changes(const RunConfig& before, const RunConfig& now);

// The keys that may change on request (rate, schedule, clip, precision; not to fp64 or from it) and
// differ.
std::vector<KeyChange> changes_on_request(const RunConfig& before, const RunConfig& now);

// Whether a fork of `before` (run.fork_from) is also one of `now`: the run folders have one name,
// and the step folders, too. The name of the run alone stands for the step folder that was chosen
// in it.
bool is_same_source(const std::string& before, const std::string& now);

// Whether the results of evaluations change how the run continues. If they do not, the run may be
// evaluated in another way and on other data, even if evaluations decided before.
bool evaluations_decide(const RunConfig& config);

// Copies the values of `keys` from `from` into `config`. An objective's key that `from` does not
// have gets the run's value.
void take_keys(RunConfig& config, const RunConfig& from, const std::vector<std::string>& keys);

// Key and value of everything that must be equal on all ranks of a run. Left out is what may differ
// between machines: devices, threads, memory, where the data is, what is shown.
std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config);

// Keys whose value is not the default, and keys of objectives whose value is not the run's.
std::set<std::string> changed_keys(const RunConfig& config);

}  // namespace tanren
