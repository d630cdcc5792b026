#include "tanren/monitor/machine_state.h"

#include "tanren/base/cgroup.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

std::optional<int64_t> number_of(std::string_view text) {
  text = trimmed(text);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

void read_cpu(const fs::path& root, const std::vector<fs::path>& folders, MachineState& state) {
  std::ifstream stat(root / "proc/stat");
  for (std::string line; std::getline(stat, line) && line.rfind("cpu", 0) == 0;) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != "cpu") {
      ++state.cores;
      continue;
    }
    // user nice system idle iowait irq softirq steal; user already includes guests.
    std::array<int64_t, 8> ticks{};
    for (auto& value : ticks) words >> value;
    for (const int64_t value : ticks) state.total_ticks += value;
    state.busy_ticks = state.total_ticks - ticks[3] - ticks[4] - ticks[7];
  }
  state.allowed_cores = static_cast<double>(state.cores);
  std::ifstream status(root / "proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kKey = "Cpus_allowed_list:";
    if (line.rfind(kKey, 0) != 0) continue;
    const auto allowed = count_of_list(trimmed(std::string_view(line).substr(kKey.size())));
    if (allowed > 0) state.allowed_cores = static_cast<double>(allowed);
  }
  for (const auto& folder : folders) {
    const double quota = cgroup_cpu_quota(folder);
    if (quota > 0) state.allowed_cores = std::min(state.allowed_cores, quota);
    if (state.cgroup_cpu_seconds) continue;  // the innermost that reports it
    const auto usage = kernel_table(folder / "cpu.stat");
    if (const auto found = usage.find("usage_usec"); found != usage.end()) {
      state.cgroup_cpu_seconds = static_cast<double>(found->second) * 1e-6;
    } else if (const auto nanoseconds = kernel_number(folder / "cpuacct.usage")) {
      state.cgroup_cpu_seconds = static_cast<double>(*nanoseconds) * 1e-9;
    }
  }
  std::istringstream load(kernel_line(root / "proc/loadavg"));
  for (auto& value : state.load) load >> value;
}

}  // namespace

int64_t count_of_list(std::string_view list) {
  int64_t count = 0;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    const auto part = list.substr(0, comma);
    const auto dash = part.find('-');
    const auto first = number_of(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_of(part.substr(dash + 1));
    if (!first || !last || *last < *first) return 0;
    count += *last - *first + 1;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return count;
}

MachineState read_machine(const fs::path& root) {
  const auto folders = cgroup_folders(root);
  MachineState state{read_machine_memory(root)};
  read_cpu(root, folders, state);
  return state;
}

}  // namespace tanren
