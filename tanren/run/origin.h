// Origin: what the numbers of a checkpoint come from beside its config: the data, and the keys that were
// changed on request on the way. Each checkpoint has it as origin.json; a run goes on with the same data
// alone, and tells of its changes. Internal to run/.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/config/identity.h"
#include "tanren/data/dataset.h"
#include "tanren/parallel/data_parallel.h"
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
  std::vector<ConfigChange> changes;  // in their order
};

// Number of samples and hashes of the parts of each dataset.
Facts data_facts(const Dataset& train, const Dataset* eval);

std::string to_json(const Origin& origin);
// Of a step folder; nothing in it where an older tanren wrote that. CheckpointError where it is damaged.
Origin read_origin(const std::filesystem::path& step_folder);

// DataError on every rank, naming the first fact of `now` (the same on all) that is another in `saved`,
// and the ways to go on with `config`. Facts that one of them lacks are passed over; those of data.eval,
// too, where no evaluation decides over the run, or none was made before the checkpoint: the log tells it.
void check_data_unchanged(Communicator& ranks, const Facts& saved, const Facts& now,
                          const std::filesystem::path& step_folder, const RunConfig& config);

// The changes of a run of `config` that goes on from `step_folder`: those before it, and what is another
// in the config that it was written with.
std::vector<ConfigChange> changes_until(const std::filesystem::path& step_folder,
                                        const RunConfig& config);

// Keys that `changes` have brought to what `before` says, where `now` still has a value from before that
// and nobody asks for it.
std::vector<std::string> overtaken_keys(const std::vector<ConfigChange>& changes,
                                        const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested);

// What the terminal, the plan and the log file say of it.
std::string change_line(const ConfigChange& change);
void add_changes(Plan& plan, const std::vector<ConfigChange>& changes);
std::string log_line(const ConfigChange& change, int64_t from_attempt);

}  // namespace tanren
