#include "tanren/base/cgroup.h"

#include "tanren/base/text.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

std::string kernel_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> kernel_number(const fs::path& path) {
  const std::string line = kernel_line(path);
  const std::string_view text = trimmed(line);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

std::map<std::string, int64_t> kernel_table(const fs::path& path) {
  std::map<std::string, int64_t> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t value = 0;
    if (!(words >> key >> value)) continue;
    if (key.back() == ':') key.pop_back();
    table[key] = value;
  }
  return table;
}

std::vector<fs::path> cgroup_folders(const fs::path& root) {
  const fs::path base = root / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/a/b"; version 2: "0::/a/b"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const fs::path top = base / line.substr(first + 1, second - first - 1);
    fs::path below = fs::path(line.substr(second + 1)).relative_path();
    for (; !below.empty(); below = below.parent_path()) folders.push_back(top / below);
    folders.push_back(top);
  }
  for (const auto& top : {base, base / "cpu", base / "memory"}) folders.push_back(top);
  return folders;
}

double cgroup_cpu_quota(const fs::path& folder) {
  double quota = -1, period = 0;
  std::istringstream version2(kernel_line(folder / "cpu.max"));
  if (!(version2 >> quota >> period)) {  // "max 100000" fails at max: no quota
    quota = -1;
    std::istringstream(kernel_line(folder / "cpu.cfs_quota_us")) >> quota;
    std::istringstream(kernel_line(folder / "cpu.cfs_period_us")) >> period;
  }
  return quota > 0 && period > 0 ? quota / period : -1;
}

}  // namespace tanren
