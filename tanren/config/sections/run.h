// [run]: what the run is called, how long it is and where it computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tanren {

struct RunOptions {
  std::string name;  // folder runs/<name>; required (default: the config file's stem)
  int64_t seed = 0;
  std::optional<int64_t> steps;       // applied updates; this or epochs
  std::optional<int64_t> epochs;      // passes over the training data
  std::string device = "auto";        // auto, cpu, cuda, cuda:<i>
  int64_t threads = 0;                // 0: the cores this process may use
  bool deterministic = false;         // deterministic kernels only
  bool debug = false;                 // rank 0 shows layers and shapes before the first step
  std::optional<int64_t> stop_after;  // applied steps of this start before a resumable stop
  std::string max_time;   // of each start, after which it has saved and stopped; empty: none
  std::string fork_from;  // run or step folder of another run; relative to the config file
};

}  // namespace tanren
