// Reads the end of a run's log.jsonl (docs/file-formats.md): the run's progress and speed. A run
// may be writing the file: a torn last line, or one that is not JSON, is skipped. Torch-free, no
// state. Called by runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct LogTail {
  int64_t attempt = 0, step = 0, epoch = 0;
  std::optional<double> loss, learning_rate, grad_norm;  // absent: not finite
  std::string verdict, cause;                            // of the last attempt
  // Over the last attempts, at most 100; 0: unknown. Only applied steps count as steps.
  double samples_per_second = 0, tokens_per_second = 0, seconds_per_step = 0;
  double wait_share = 0;     // share of the time spent waiting for data
  int64_t memory_bytes = 0;  // peak: resident (CPU), allocated (CUDA)
  // The newest evaluation among these attempts, if there is one.
  std::optional<int64_t> evaluation_step;
  std::vector<std::pair<std::string, double>> evaluation;
};

struct BestEvaluation {
  int64_t step = 0;
  double value = 0;
};
// The best value of `metric` among all evaluations of a log; of equal ones the first. Reads the
// whole log. Empty if no evaluation has a finite value of it.
std::optional<BestEvaluation> best_evaluation(const std::filesystem::path& log,
                                              const std::string& metric, bool lower_is_better);

// Step and value of `metric` of each evaluation of a log, in its order; NaN: it was not finite.
// Reads the whole log. Called by sweeps.
std::vector<std::pair<int64_t, double>> evaluations_of(const std::filesystem::path& log,
                                                       const std::string& metric);

// Reads only as much of the file's end as 100 attempts of usual length need; to find a single
// longer attempt, up to 8 MiB. Empty if the file cannot be read or has no whole attempt there.
std::optional<LogTail> read_log_tail(const std::filesystem::path& log);

}  // namespace tanren
