// Memory (machine_memory.h) and processors that the machine and this process's cgroup use and allow
// at one moment, read from /proc and /sys/fs/cgroup (version 1 or 2). Counters are raw; shares come
// from two states (monitor.h). Values that the kernel does not report are absent, never an error.
// Torch-free, no state.
#pragma once

#include "tanren/base/machine_memory.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace tanren {

struct MachineState : MachineMemory {
  int64_t cores = 0;         // online
  double allowed_cores = 0;  // for this process: its affinity, limited by its cgroup's CPU quota
  int64_t busy_ticks = 0;    // of all cores since boot; not idle, waiting for disks, or stolen
  int64_t total_ticks = 0;
  std::optional<double> cgroup_cpu_seconds;  // used by this cgroup so far
  std::array<double, 3> load{};              // over 1, 5 and 15 minutes
};

// `root` is the folder that holds proc/ and sys/.
MachineState read_machine(const std::filesystem::path& root = "/");
// The number of entries in a kernel list: 5 for "0-3,8"; 0 for anything else.
int64_t count_of_list(std::string_view list);

}  // namespace tanren
