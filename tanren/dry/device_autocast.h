// CUDA's lists of casts for dry tensors, which report the CPU: under autocast a device computes
// other operators in fp32 than the CPU does, and keeps what it computes. Internal to dry_scope.
#pragma once

#include <c10/core/DispatchKey.h>

namespace tanren {

// A key of autocast that no backend here uses. The kernels there cast tensors of the CPU.
inline constexpr auto kDeviceAutocast = c10::DispatchKey::AutocastIPU;

// Puts the kernels there, once in a process.
void register_device_autocast();

}  // namespace tanren
