// Memory facts that are counted anyway: by the operating system, the device's allocator and ours.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace tanren {

// Bytes: peak resident set of this process on the CPU, peak allocated on an accelerator.
int64_t memory_now(at::Device device);

// Bytes that tensors hold now, on the CPU and on `device`. torch's CPU allocator does not count;
// with it, this uses the bytes that malloc has allocated. Takes some microseconds, too long for
// every step.
int64_t live_bytes(at::Device device);

}  // namespace tanren
