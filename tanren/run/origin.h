// Origin: what determines a checkpoint's numbers besides its config: the data, the keys that were
// changed on request during the run, and the checkpoint that a fork began with. Each checkpoint has
// it as origin.json. A run resumes only with the same data, and reports the rest. Internal to run/.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/config/identity.h"
#include "tanren/data/dataset.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace tanren {

struct ConfigChange {
  int64_t step = 0;  // applied updates before it
  KeyChange key;
};

struct Origin {
  Facts data;                         // "labels of data.train" → a hash
  std::vector<ConfigChange> changes;  // in order
  std::vector<PlanLine> fork = {};    // of a fork: the plan's lines on what it took
};

// The number of samples and the hashes of the parts of each dataset.
Facts data_facts(const Dataset& train, const Dataset* eval);

std::string to_json(const Origin& origin);
// Reads the origin of a step folder; empty if an older tanren wrote the folder. CheckpointError if
// it is damaged.
Origin read_origin(const std::filesystem::path& step_folder);
// The same of the text of its origin.json.
Origin parse_origin(const std::string& text, const std::filesystem::path& step_folder);

// DataError on every rank if a fact of `now` (the same on all ranks) differs from `saved`; names
// the first one, and the ways to resume with `config`. Facts that either side lacks are skipped.
// Facts of data.eval are skipped with a log line if no evaluation decides over the run, or none was
// made before the checkpoint.
void check_data_unchanged(Communicator& ranks, const Facts& saved, const Facts& now,
                          const std::filesystem::path& step_folder, const RunConfig& config);

// All changed keys of a run with `config` that resumes from `step_folder`: the changes that the
// folder records, then the keys whose values differ from the folder's config.
std::vector<ConfigChange> changes_until(const std::filesystem::path& step_folder,
                                        const RunConfig& config);

// Keys that `changes` set to the value in `before`, while `now` still has an earlier value and
// `requested` does not name the key.
std::vector<std::string> overtaken_keys(const std::vector<ConfigChange>& changes,
                                        const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested);

// How the terminal, the plan and the log file show a change.
std::string change_line(const ConfigChange& change);
void add_origin(Plan& plan, const Origin& origin);
std::string log_line(const ConfigChange& change, int64_t from_attempt);

}  // namespace tanren
