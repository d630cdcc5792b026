// Whether two configs are the same run: checked before a run resumes in its folder, and by ranks
// before they start.
#pragma once

#include "tanren/config/run_config.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// "key: before → now" for each key that defines the run and differs, including the keys of an
// objective that only one config has. run.steps and run.epochs may grow. Skips keys that do not
// change training, keys of evaluations if no evaluation decides over the run, and keys in
// `requested` that may change on request.
std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested = {});

// One key's values as TOML text ("not set" if there is none).
struct KeyChange {
  std::string key, before, now;
};

// The keys of differing_keys() with their values: a run that resumes may not change them, but a
// fork may.
std::vector<KeyChange> defining_changes(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested = {});

// All keys that differ, including those that any run may change.
std::vector<KeyChange> all_changes(const RunConfig& before, const RunConfig& now);

// The keys that differ and may change on request (rate, schedule, clip, precision except to or from
// fp64).
std::vector<KeyChange> changes_on_request(const RunConfig& before, const RunConfig& now);

// Whether two values of run.fork_from mean the same source: the run folders have the same name, and
// so have the step folders. If `now` names only a run folder, every step folder of that run is the
// same source.
bool is_same_source(const std::string& before, const std::string& now);

// Whether the results of evaluations change how the run continues. If they do not, the run may be
// evaluated in another way and on other data, even if evaluations decided before.
bool evaluations_decide(const RunConfig& config);

// Copies the values of `keys` from `from` into `config`. An objective's key that `from` does not
// have gets the run's value.
void take_keys(RunConfig& config, const RunConfig& from, const std::vector<std::string>& keys);

// Key and value of everything that must be equal on all ranks of a run. Leaves out what may differ
// between machines: devices, threads, memory, where the data is, what is shown.
std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config);

// Keys whose value is not the default, and keys of objectives whose value is not the run's.
std::set<std::string> changed_keys(const RunConfig& config);

}  // namespace tanren
