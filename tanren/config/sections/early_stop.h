// [early_stop]: ends a run that no longer improves.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct EarlyStopOptions {
  int64_t patience = 0;         // evaluations without improvement that end the run; 0: off
  std::string metric = "loss";  // loss, or one of evaluate.metrics
  std::string mode = "auto";    // auto (by the metric), min, max
  double min_delta = 0.0;       // an improvement is better by more than this
  int64_t start = 0;            // evaluations before this step do not count
};

}  // namespace tanren
