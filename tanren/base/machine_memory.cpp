#include "tanren/base/machine_memory.h"

#include "tanren/base/cgroup.h"

#include <algorithm>
#include <map>
#include <string>

namespace tanren {

namespace fs = std::filesystem;

namespace {

int64_t at_or_zero(const std::map<std::string, int64_t>& table, const char* key) {
  const auto found = table.find(key);
  return found == table.end() ? 0 : found->second;
}

struct CgroupMemory {
  std::optional<int64_t> limit, used, cache;
};

CgroupMemory memory_of(const fs::path& folder) {
  CgroupMemory memory;
  memory.limit = kernel_number(folder / "memory.max");  // "max": none
  memory.used = kernel_number(folder / "memory.current");
  const char* cache = "inactive_file";
  if (!memory.used) {
    memory.limit = kernel_number(folder / "memory.limit_in_bytes");
    memory.used = kernel_number(folder / "memory.usage_in_bytes");
    cache = "total_inactive_file";
  }
  if (!memory.used) return memory;
  const auto table = kernel_table(folder / "memory.stat");
  if (const auto found = table.find(cache); found != table.end()) memory.cache = found->second;
  return memory;
}

}  // namespace

MachineMemory read_machine_memory(const fs::path& root) {
  constexpr int64_t kKibibyte = 1024;
  MachineMemory memory;
  const auto info = kernel_table(root / "proc/meminfo");
  memory.total_bytes = at_or_zero(info, "MemTotal") * kKibibyte;
  memory.available_bytes = at_or_zero(info, "MemAvailable") * kKibibyte;
  memory.swap_total_bytes = at_or_zero(info, "SwapTotal") * kKibibyte;
  memory.swap_free_bytes = at_or_zero(info, "SwapFree") * kKibibyte;
  for (const auto& folder : cgroup_folders(root)) {
    const CgroupMemory group = memory_of(folder);
    // Version 1 writes "no limit" as a number larger than any memory.
    const bool limits = group.limit && *group.limit > 0 && *group.limit < memory.total_bytes &&
                        *group.limit < memory.cgroup_limit_bytes.value_or(memory.total_bytes);
    if (limits) memory.cgroup_limit_bytes = group.limit;
    if (limits || !memory.cgroup_used_bytes) {
      memory.cgroup_used_bytes = group.used;
      memory.cgroup_cache_bytes = group.cache;
    }
  }
  return memory;
}

MemoryRoom room_of(const MachineMemory& memory) {
  MemoryRoom room{memory.available_bytes, memory.total_bytes};
  if (!memory.cgroup_limit_bytes || !memory.cgroup_used_bytes) return room;
  const int64_t left = std::max<int64_t>(*memory.cgroup_limit_bytes - *memory.cgroup_used_bytes +
                                             memory.cgroup_cache_bytes.value_or(0),
                                         0);
  if (left < room.available_bytes) room = {left, *memory.cgroup_limit_bytes};
  return room;
}

}  // namespace tanren
