// Summary: the figures of a run, as summary.json has them. Plain data, filled by run.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace tanren {

struct Summary {
  int64_t steps = 0;              // applied updates of the run, earlier sessions included
  int64_t attempts = 0;           // global batches consumed, likewise
  double samples_per_second = 0;  // of this session, as are the next three
  double tokens_per_second = 0;   // 0, and left out, if the data counts none
  double wall_seconds = 0;
  double startup_seconds = 0;  // from the process's start to the end of its first step
  double final_loss = std::numeric_limits<double>::quiet_NaN();  // of its last update; NaN: unknown
  NamedValues final_losses;  // of several objectives, each of its last update
  NamedValues evaluate;      // of the last evaluation
  int64_t peak_memory_bytes = 0;
  std::optional<int64_t> peak_tensor_bytes;  // on the CPU, exact; set if our allocator counts
  // The predicted peak of tensor memory in a step, over all replicas that share that memory; set if
  // there is a prediction.
  std::optional<int64_t> predicted_peak_bytes;
  int64_t skipped_steps = 0;  // attempts that were not applied
  double device_reads_per_step = 0;
  int64_t out_of_memory = 0;         // failures for lack of memory that were recovered from
  std::string growth;                // what the leak detector warned of; empty: nothing
  std::string status;                // finished, stopped, failed
  std::string reason;                // why the run ended early or failed; empty: it did neither
  std::string cause;                 // kind of failure (run/failure.h); empty: it did not fail
  std::optional<int64_t> best_step;  // of the best checkpoint, with checkpoint.best
  double best_value = 0;
  std::string best_metric;
  std::string weights;    // file of the exported weights; empty: none
  std::string unwritten;  // why a finished run's 8-bit model was not written; empty: no reason
};

// One JSON object, a key a line, without a closing line feed. Keys have the names of the fields.
// Each entry of evaluate and final_losses has its own key: "evaluate.<metric>",
// "final_loss.<objective>". The keys "best.step", "best.<metric>", "weights", "unwritten",
// "reason", "cause", "growth" and "out_of_memory" are present only if they are set. A value that is
// not finite is null. A failed run has no speeds, startup_seconds and device_reads_per_step,
// because its session has no end to measure.
std::string to_json(const Summary& summary);

}  // namespace tanren
