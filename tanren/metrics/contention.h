// ContentionWatch: says once that other processes want the cores too, which nothing else in a run's
// output would tell from a slow model. It asks the kernel who waits: the machine's pressure, to which
// threads of this run may add, and the time that the calling thread itself waited. One thread.
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

  // Of the files below `proc`; empty: never says anything.
  explicit ContentionWatch(std::filesystem::path proc) : proc_(std::move(proc)) {}

  // The line, once; looks at the files every few seconds at most. On the thread whose waits count.
  std::optional<std::string> look(Clock::time_point now);

 private:
  std::filesystem::path proc_;  // empty: done
  std::optional<double> waited_;
  Clock::time_point at_;
};

}  // namespace tanren
