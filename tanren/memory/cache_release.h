// CacheRelease: decides when the memory that allocators cache for the next step is returned to the
// system. Returning it after every step costs too much, so by default it is returned under
// pressure: when the machine, the cgroup or the device is nearly full. Used by train_loop on the
// step's thread.
#pragma once

#include "tanren/base/machine_memory.h"
#include "tanren/memory/gauge.h"
#include "tanren/plan/plan.h"

#include <chrono>
#include <functional>

namespace tanren {

class CacheRelease {
 public:
  using Clock = std::chrono::steady_clock;

  // `room` returns the memory that is left; unset: the machine's or the device's.
  CacheRelease(ReleaseCache when, at::Device device, std::function<MemoryRoom()> room = {});

  // After a step: gives the cache back if it is time to. Under pressure it looks at most once a
  // second, and logs the first release. True if the cache was given back.
  bool after_step(Clock::time_point now = Clock::now());

 private:
  bool is_short(Clock::time_point now);

  ReleaseCache when_;
  MemoryGauge gauge_;
  std::function<MemoryRoom()> room_;
  Clock::time_point next_look_;
  bool told_ = false;
};

}  // namespace tanren
