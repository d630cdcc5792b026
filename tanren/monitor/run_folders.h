// What became of the runs of a folder, from their files: config.toml, plan.txt, log.jsonl,
// summary.json and who holds the lock. Writes nothing and tries no lock. A folder that is no run,
// or a damaged one, is told as what it is. Torch-free, no state. Called by `tanren runs`.
#pragma once

#include "tanren/monitor/log_tail.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

enum class RunStage {
  running,        // a process of this machine holds its lock
  stopped,        // saved and stopped; it resumes
  finished,       // reached its end
  failed,         // ended by an error, or without a word: a kill, a crash; or runs elsewhere
  begun_by_none,  // a config alone: no process has begun the run
  damaged,        // a file of it cannot be read
  no_run,         // some other folder
};
// "running", "no run", …
const char* name(RunStage stage);

struct RunFolderState {
  std::filesystem::path folder;
  RunStage stage = RunStage::no_run;
  std::string remark;       // why it is damaged or no run, ended early or failed; may be empty
  int64_t step = 0;         // applied updates
  int64_t total_steps = 0;  // of its plan; 0: unknown
  std::optional<double> loss;
  std::string best_metric;  // empty: none known
  std::optional<BestEvaluation> best;
  std::optional<double> age_seconds;  // since it last wrote one of these files
};

// One folder. `running`: real paths of the folders whose lock a process holds.
RunFolderState run_folder_state(const std::filesystem::path& folder,
                                const std::set<std::filesystem::path>& running);

// The folders to list: `folder` itself if it is a run folder or a checkpoint, or has a config and
// no run folder in it; else the folders in it by name, but those whose name begins with a dot.
// InputError if it cannot be read.
std::vector<std::filesystem::path> run_folders_in(const std::filesystem::path& folder);

}  // namespace tanren
