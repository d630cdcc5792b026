// Memory facts that cost nothing to read: until there is a meter, what the operating system and the
// device's allocator count anyway.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace tanren {

// Bytes: peak resident set of this process on the CPU, peak allocated on an accelerator.
int64_t memory_now(at::Device device);

}  // namespace tanren
