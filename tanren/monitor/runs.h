// Finds the active runs of this machine: the processes that hold a run folder's lock file open. So
// a user's own programs are found like `tanren run`. Writes nothing and tries no lock, so runs are
// not disturbed. Torch-free, no state. Called by monitor.
#pragma once

#include "tanren/monitor/log_tail.h"
#include "tanren/monitor/process_state.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace tanren {

struct RunStatus {
  std::filesystem::path folder;
  ProcessState process;
  int64_t total_steps = 0;                // from its plan; 0: unknown
  std::optional<LogTail> log;             // empty: nothing logged yet, or no log (metrics.jsonl)
  std::optional<double> log_age_seconds;  // since the last write to its log
  // Time to total_steps at the present speed, without evaluations and checkpoints.
  std::optional<double> seconds_left() const;
  // Whether this process has not written to its log yet: it is loading, or has no log.
  bool is_starting() const;
};

// The steps of a run folder's plan.txt; 0: unknown.
int64_t planned_steps(const std::filesystem::path& folder);
// Since the last write to `file`; empty if there is none.
std::optional<double> seconds_since_write(const std::filesystem::path& file);

// Sorted by pid. Skips processes of other users, processes that end meanwhile, and folders that no
// longer exist. `root` is the folder that holds proc/.
std::vector<RunStatus> find_runs(const std::filesystem::path& root = "/");

}  // namespace tanren
