#include "tanren/memory/cache_release.h"

#include "tanren/base/log.h"
#include "tanren/base/text.h"

#include <ATen/DeviceAccelerator.h>

#include <utility>

namespace tanren {

namespace {

constexpr int64_t kScarce = 20;  // memory is short if less than this part of the whole is left
constexpr std::chrono::seconds kBetweenLooks{1};

std::function<MemoryRoom()> room_on(at::Device device) {
  if (device.is_cpu()) return [] { return room_of(read_machine_memory()); };
  return [device] {  // the allocator's cache counts as available, because tensors reuse it
    const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
    const int64_t available = static_cast<int64_t>(free) + MemoryGauge(device).cached();
    return MemoryRoom{available, static_cast<int64_t>(total)};
  };
}

}  // namespace

CacheRelease::CacheRelease(ReleaseCache when, at::Device device, std::function<MemoryRoom()> room)
    : when_(when), gauge_(device), room_(room ? std::move(room) : room_on(device)) {}

bool CacheRelease::is_short(Clock::time_point now) {
  if (now < next_look_) return false;
  next_look_ = now + kBetweenLooks;
  const MemoryRoom room = room_();
  if (room.total_bytes == 0 || room.available_bytes >= room.total_bytes / kScarce) return false;
  if (!told_) {
    log("[memory] " + size_text(room.available_bytes) + " of " + size_text(room.total_bytes) +
        " are left: after steps the allocator's cache goes back; memory.release_cache sets it");
  }
  told_ = true;
  return true;
}

bool CacheRelease::after_step(Clock::time_point now) {
  const bool is_time =
      when_ == ReleaseCache::step || (when_ == ReleaseCache::pressure && is_short(now));
  if (is_time) gauge_.release_cache();
  return is_time;
}

}  // namespace tanren
