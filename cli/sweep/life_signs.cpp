#include "cli/sweep/life_signs.h"

#include "tanren/monitor/process_state.h"

#include <utility>

namespace tanren::cli {

LifeSigns::LifeSigns(pid_t pid, std::filesystem::path log, Clock::time_point now)
    : pid_(pid), log_(std::move(log)), last_(now) {}

LifeSigns::Clock::duration LifeSigns::silence(Clock::time_point now) {
  constexpr double kShare = 0.01;
  const auto process = read_process(pid_);
  const double used = process ? process->cpu_seconds : cpu_seconds_;
  std::error_code none;
  const uintmax_t bytes = std::filesystem::file_size(log_, none);
  const double seconds = std::chrono::duration<double>(now - last_).count();
  const bool works = used - cpu_seconds_ > kShare * seconds;
  const bool writes = !none && bytes != log_bytes_;
  if (works || writes) {
    last_ = now;
    cpu_seconds_ = used;
    if (!none) log_bytes_ = bytes;
  }
  return now - last_;
}

}  // namespace tanren::cli
