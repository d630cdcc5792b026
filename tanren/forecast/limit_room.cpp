#include "tanren/forecast/limit_room.h"

#include <algorithm>

namespace tanren {

namespace {

constexpr int64_t kLost = int64_t{4} << 20;

}  // namespace

int64_t sharers(const Plan& plan) {
  const auto& devices = plan.parallel.devices;
  if (devices.empty()) return plan.parallel.thread_ranks();
  int64_t most = 1;
  for (const int64_t device : devices) {
    most = std::max<int64_t>(most, std::count(devices.begin(), devices.end(), device));
  }
  return most;
}

int64_t room_for_step(const Plan& plan, int64_t standing_bytes) {
  if (plan.memory.limit_bytes <= 0) return 0;
  const int64_t room = plan.memory.limit_bytes - plan.memory.reserve_bytes - standing_bytes;
  return std::max<int64_t>(room / sharers(plan), 1);
}

int64_t taken(int64_t peak_bytes) { return peak_bytes + peak_bytes / 64 + kLost; }

int64_t largest_peak(int64_t room_bytes) { return (room_bytes - kLost) / 65 * 64; }

bool fits(int64_t peak_bytes, int64_t room_bytes) {
  return room_bytes == 0 || taken(peak_bytes) <= room_bytes;
}

int64_t smallest_limit(int64_t bytes) {
  // The reserve is a sixteenth of the limit, at most 16 MiB.
  const int64_t reserve = std::min(bytes / 15, int64_t{16} << 20);
  return (bytes + reserve + (1 << 20) - 1) >> 20;
}

bool is_more_than_device(const MemoryPlan& memory, int64_t mebibytes) {
  return memory.limit_share > 0 && static_cast<double>(mebibytes << 20) * memory.limit_share >
                                       static_cast<double>(memory.limit_bytes);
}

}  // namespace tanren
