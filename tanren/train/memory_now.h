// Memory facts that are counted anyway: by the operating system, the device's allocator and ours.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace tanren {

// Bytes: peak resident set of this process on the CPU, peak allocated on an accelerator.
int64_t memory_now(at::Device device);

// Bytes that tensors hold now, on the CPU and on `device`. If the CPU's allocator is torch's, which
// does not count, the bytes that malloc has given out are taken instead. Takes some microseconds:
// not for every step.
int64_t live_bytes(at::Device device);

}  // namespace tanren
