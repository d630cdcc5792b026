// Memory facts that are counted anyway: by the operating system, the device's allocator and ours.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace tanren {

// Bytes: peak resident set of this process on the CPU, peak allocated on an accelerator.
int64_t memory_now(at::Device device);

// Bytes that tensors hold now, on the CPU and on `device`. Where the CPU's allocator is torch's, which
// does not count, what malloc has given out instead. Some microseconds: not for every step.
int64_t live_bytes(at::Device device);

}  // namespace tanren
