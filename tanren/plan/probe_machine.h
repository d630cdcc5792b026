// What this machine offers, read from the kernel; accelerators are added by train/device.h.
#pragma once

#include "tanren/plan/plan.h"

#include <filesystem>

namespace tanren {

// Cores: affinity, cut to the CPU quota (at least 1) of this process's cgroup and of all above it,
// version 1 or 2. Memory: theirs, if lower. `root` is where proc/ and sys/ lie.
Machine probe_machine(const std::filesystem::path& root = "/");

}  // namespace tanren
