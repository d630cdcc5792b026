// The runs of this machine that are going on: whoever holds a run folder's lock open, so programs
// with models of their own are found like `tanren run`. Nothing is written and no lock is tried, so a
// run cannot notice. Torch-free, no state. Called by monitor.
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
  int64_t total_steps = 0;                // as its plan has it; 0: unknown
  std::optional<LogTail> log;             // nothing yet, or written nowhere (metrics.jsonl)
  std::optional<double> log_age_seconds;  // since its log was written to
  // Until total_steps at the present speed, evaluations and checkpoints not counted.
  std::optional<double> seconds_left() const;
  // Whether nothing of its log was written by this process yet: loading, or without a log.
  bool is_starting() const;
};

// By pid. A process of another user, one that ends meanwhile, or a folder that is gone is passed over.
// `root` is where proc/ lies.
std::vector<RunStatus> find_runs(const std::filesystem::path& root = "/");

}  // namespace tanren
