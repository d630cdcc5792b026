// Whether a process that writes a log still does anything: it adds to the log or uses processor
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
  // The time since the last sign, as of this look. A sign is a log line, or a hundredth of a
  // processor since the last sign: a thread that only wakes now and then gives none.
  Clock::duration silence(Clock::time_point now);
  // The time until now does not count: the process was paused.
  void begin_anew(Clock::time_point now) { last_ = now; }

 private:
  pid_t pid_;
  std::filesystem::path log_;
  Clock::time_point last_;   // sign
  double cpu_seconds_ = 0;   // then
  uintmax_t log_bytes_ = 0;  // then
};

}  // namespace tanren::cli
