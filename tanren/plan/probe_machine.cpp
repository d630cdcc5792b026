#include "tanren/plan/probe_machine.h"

#include "tanren/base/cgroup.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

int64_t usable_cores(const std::vector<fs::path>& folders) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t cores = sched_getaffinity(0, sizeof set, &set) == 0
                      ? CPU_COUNT(&set)
                      : std::thread::hardware_concurrency();  // more cores than cpu_set_t holds
  for (const auto& folder : folders) {
    const double quota = cgroup_cpu_quota(folder);
    if (quota > 0) cores = std::min<int64_t>(cores, std::lround(quota));
  }
  return std::max<int64_t>(cores, 1);
}

int64_t usable_memory(const std::vector<fs::path>& folders) {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  for (const auto& folder : folders) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      int64_t limit = 0;
      const bool is_number = bool(std::istringstream(kernel_line(folder / name)) >> limit);
      if (is_number && limit > 0) bytes = std::min(bytes, limit);
    }
  }
  return bytes;
}

}  // namespace

Machine probe_machine(const fs::path& root) {
  const auto folders = cgroup_folders(root);
  Machine machine;
  machine.cores = usable_cores(folders);
  machine.memory_bytes = usable_memory(folders);
#ifdef __SANITIZE_ADDRESS__
  machine.address_sanitizer = true;
#endif
  std::ifstream cpuinfo(root / "proc/cpuinfo");
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
    machine.cpu_vnni = has("avx512_vnni");
    machine.cpu_amx_int8 = has("amx_int8");
  }
  return machine;
}

}  // namespace tanren
