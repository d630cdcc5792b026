#include "tanren/plan/probe_machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace tanren {

namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  double quota = -1, period = 0;
  std::istringstream version2(first_line("/sys/fs/cgroup/cpu.max"));
  if (!(version2 >> quota >> period)) {  // "max 100000" fails at max: no quota
    std::istringstream(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")) >> quota;
    std::istringstream(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us")) >> period;
  }
  if (quota > 0 && period > 0) cores = std::min(cores, static_cast<int64_t>(quota / period + 0.5));
  return std::max<int64_t>(cores, 1);
}

int64_t usable_memory() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::istringstream(first_line(path)) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace

Machine probe_machine() {
  Machine machine;
  machine.cores = usable_cores();
  machine.memory_bytes = usable_memory();
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2) + " ";
    if (line.rfind("model name", 0) == 0) machine.cpu = line.substr(colon + 2);
    if (line.rfind("flags", 0) != 0) continue;
    const auto has = [&](const char* flag) {
      return value.find(std::string(flag) + " ") != std::string::npos;
    };
    machine.cpu_bf16 = has("avx512_bf16") || has("amx_bf16");
    machine.cpu_fp16 = has("avx512_fp16") || has("amx_fp16");
  }
  return machine;
}

}  // namespace tanren
