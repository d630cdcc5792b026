// The states of the runs in a folder, from their files: config.toml, plan.txt, log.jsonl,
// summary.json and the holder of the lock. Writes nothing and takes no lock. A folder that is no
// run, or is damaged, gets that as its state. Torch-free, no state. Called by `tanren runs`.
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
  failed,         // ended by an error, a kill or a crash; or runs on another machine
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

// The folders to list: `folder` itself if it is a run folder or a checkpoint, or if it has a config
// and contains no run folder. Otherwise the folders in it by name, without those whose name begins
// with a dot. InputError if it cannot be read.
std::vector<std::filesystem::path> run_folders_in(const std::filesystem::path& folder);

}  // namespace tanren
