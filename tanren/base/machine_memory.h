// The memory of the machine and of this process's cgroup, total and used, read from /proc and
// /sys/fs/cgroup (version 1 or 2). A value that the kernel does not report is absent or 0, never an
// error. Torch-free, no state; some 100 µs a call. Called by monitor and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tanren {

struct MachineMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // without swapping, if caches are freed
  int64_t swap_total_bytes = 0, swap_free_bytes = 0;
  // The lowest limit of the cgroups around this process, and the memory used in the cgroup that
  // sets it; without a limit, the memory used in this process's own cgroup.
  std::optional<int64_t> cgroup_limit_bytes;
  std::optional<int64_t> cgroup_used_bytes;
  std::optional<int64_t> cgroup_cache_bytes;  // of the used: file pages that the kernel frees first
};

// `root` is the folder that holds proc/ and sys/.
MachineMemory read_machine_memory(const std::filesystem::path& root = "/");

// The memory that this process can still get, and the total that it comes from: the cgroup's
// numbers if the cgroup leaves less than the machine, else the machine's.
struct MemoryRoom {
  int64_t available_bytes = 0, total_bytes = 0;
};
MemoryRoom room_of(const MachineMemory& memory);

}  // namespace tanren
