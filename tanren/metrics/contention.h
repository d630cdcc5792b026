// ContentionWatch: reports once that other processes compete for the cores; nothing else in a run's
// output distinguishes this from a slow model. It reads two figures of the kernel: the machine's
// CPU pressure, which threads of this run may add to, and the time that the calling thread itself
// waited. For one thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace tanren {

class ContentionWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads files below `proc`; empty: never reports anything.
  explicit ContentionWatch(std::filesystem::path proc) : proc_(std::move(proc)) {}

  // Returns the line, once. Reads the files every few seconds at most. Call it on the thread whose
  // waits count.
  std::optional<std::string> look(Clock::time_point now);

 private:
  std::filesystem::path proc_;  // empty: done
  std::optional<double> waited_;
  Clock::time_point at_;
};

}  // namespace tanren
