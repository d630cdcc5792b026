#include "tanren/train/memory_now.h"

#include "tanren/memory/cpu_allocator.h"
#include "tanren/memory/gauge.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <malloc.h>
#include <sys/resource.h>

namespace tanren {

int64_t memory_now(at::Device device) {
  if (!device.is_cpu()) return MemoryGauge(device).whole_peak();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int64_t live_bytes(at::Device device) {
  int64_t bytes = 0;
  if (!device.is_cpu()) {
    bytes = at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].current;
  }
  if (cpu_allocator_installed()) return bytes + cpu_memory_stats().live_bytes;
  const auto heap = ::mallinfo2();
  return bytes + static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

}  // namespace tanren
