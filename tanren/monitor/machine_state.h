// What the machine and this process's cgroup use and allow at one moment, read from /proc and
// /sys/fs/cgroup (version 1 or 2). Counters are raw; shares come from two states (monitor.h). What
// the kernel does not say is absent, never an error. Torch-free, no state.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace tanren {

struct MachineState {
  int64_t cores = 0;         // online
  double allowed_cores = 0;  // for this process: its affinity, cut to its cgroup's CPU quota
  int64_t busy_ticks = 0;    // of all cores since boot, without waiting for disks
  int64_t total_ticks = 0;
  std::optional<double> cgroup_cpu_seconds;  // used by this cgroup so far
  std::array<double, 3> load{};              // over 1, 5 and 15 minutes
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // without swapping, caches given up
  int64_t swap_total_bytes = 0, swap_free_bytes = 0;
  // The lowest limit above this process, and the use of the cgroup that sets it; without a limit the
  // use of this process's own.
  std::optional<int64_t> cgroup_limit_bytes;
  std::optional<int64_t> cgroup_used_bytes;
  std::optional<int64_t> cgroup_cache_bytes;  // of it, file pages that the kernel gives up first
};

// `root` is where proc/ and sys/ lie.
MachineState read_machine(const std::filesystem::path& root = "/");
// Numbers in a kernel list: "0-3,8" has 5; 0 for anything else.
int64_t count_of_list(std::string_view list);

}  // namespace tanren
