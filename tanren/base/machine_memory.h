// What the machine and this process's cgroup have of memory, and how much of it is used, read from
// /proc and /sys/fs/cgroup (version 1 or 2). What the kernel does not say is absent or 0, never an
// error. Torch-free, no state; some 100 µs a call. Called by monitor and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tanren {

struct MachineMemory {
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
MachineMemory read_machine_memory(const std::filesystem::path& root = "/");

// What this process can still get, of how much: the cgroup's, where it leaves less than the machine.
struct MemoryRoom {
  int64_t available_bytes = 0, total_bytes = 0;
};
MemoryRoom room_of(const MachineMemory& memory);

}  // namespace tanren
