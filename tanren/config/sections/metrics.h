// [metrics]: where the numbers of each step are written.
#pragma once

#include <cstdint>

namespace tanren {

struct MetricsOptions {
  int64_t console_every = 1;      // steps between console lines (the log file has all)
  bool jsonl = true;              // log.jsonl, one line per attempt
  bool tensorboard = true;        // tensorboard/, event files
  int64_t tensorboard_every = 1;  // steps between points of its curves
  int64_t images_every = 0;       // steps between pictures of what the model does; 0: never
};

}  // namespace tanren
