#include "tanren/metrics/contention.h"

#include "tanren/base/cgroup.h"
#include "tanren/base/core_wait.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

constexpr std::chrono::seconds kBetweenLooks{2};
constexpr double kPressure = 0.2, kOwnWaits = 0.1;  // least shares that are reported

std::string percent(double share) { return fmt::format("{} %", std::lround(100 * share)); }

}  // namespace

std::optional<std::string> ContentionWatch::look(Clock::time_point now) {
  if (proc_.empty() || (waited_ && now - at_ < kBetweenLooks)) return std::nullopt;
  const auto waited = seconds_waited(kernel_line(proc_ / "thread-self/schedstat"));
  const auto pressure = share_of_pressure(kernel_line(proc_ / "pressure/cpu"));
  if (!waited || !pressure) {  // this kernel does not provide them
    proc_.clear();
    return std::nullopt;
  }
  const double own =
      waited_ ? (*waited - *waited_) / std::chrono::duration<double>(now - at_).count() : 0;
  waited_ = waited;
  at_ = now;
  if (*pressure < kPressure || own < kOwnWaits) return std::nullopt;
  proc_.clear();
  return "[run] the cores are contended: in the last 10 s some process waited for one " +
         percent(*pressure) + " of the time (/proc/pressure/cpu), and this run's steps did " +
         percent(std::min(own, 1.0)) + " of theirs; they take longer than alone";
}

}  // namespace tanren
