#include "tanren/train/memory_now.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <sys/resource.h>

namespace tanren {

int64_t memory_now(at::Device device) {
  if (!device.is_cpu()) {
    return at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].peak;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace tanren
