// One process, as /proc shows it. Torch-free, no state. Called by runs and monitor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tanren {

struct ProcessState {
  int64_t pid = 0;
  std::string name;         // the program's, at most 15 bytes
  int64_t start_ticks = 0;  // after boot; pid and start identify a process uniquely
  double age_seconds = 0;   // since it was started
  double cpu_seconds = 0;   // used so far, by all its threads
  int64_t threads = 0;
  int64_t resident_bytes = 0;
};

// Empty if the process does not exist (any more), if it ended and only waits for its parent, or if
// /proc does not show it.
std::optional<ProcessState> read_process(int64_t pid, const std::filesystem::path& root = "/");

}  // namespace tanren
