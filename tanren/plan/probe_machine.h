// What this machine offers, read from the kernel; accelerators are added by train/device.h.
#pragma once

#include "tanren/plan/plan.h"

#include <filesystem>

namespace tanren {

// Cores: the affinity mask, limited to the CPU quota (at least 1) of this process's cgroup and of
// all its parents, version 1 or 2. Memory: the lowest limit of these cgroups, if it is below the
// machine's. `root` is the folder of proc/ and sys/.
Machine probe_machine(const std::filesystem::path& root = "/");

}  // namespace tanren
