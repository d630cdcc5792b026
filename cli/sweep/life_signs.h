// Detects whether a process that writes a log still works: it adds to the log or uses processor
// time. Used by sweep_runner.cpp.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>

namespace tanren::cli {

class LifeSigns {
 public:
  using Clock = std::chrono::steady_clock;

  LifeSigns(pid_t pid, std::filesystem::path log, Clock::time_point now);
  // The time since the last sign of life. A sign is a longer log, or the use of more than 1% of a
  // processor since the last sign. A thread that only wakes now and then gives no sign.
  Clock::duration silence(Clock::time_point now);
  // Restarts the measurement after a pause of the process.
  void begin_anew(Clock::time_point now) { last_ = now; }

 private:
  pid_t pid_;
  std::filesystem::path log_;
  Clock::time_point last_;   // the last sign
  double cpu_seconds_ = 0;   // then
  uintmax_t log_bytes_ = 0;  // then
};

}  // namespace tanren::cli
