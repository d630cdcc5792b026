#include "tanren/monitor/process_state.h"

#include "tanren/base/cgroup.h"
#include "tanren/base/text.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace tanren {

std::optional<ProcessState> read_process(int64_t pid, const std::filesystem::path& root) {
  // "26966 (name, which may contain any character) R 1 …": see proc_pid_stat(5).
  const std::string line = kernel_line(root / "proc" / to_text(pid) / "stat");
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  std::istringstream words(line.substr(close + 1));
  char kind = 'X';
  words >> kind;
  if (!words || kind == 'Z' || kind == 'X') return std::nullopt;
  int64_t user = 0, system = 0, pages = 0;
  ProcessState state;
  for (int field = 4; field <= 24; ++field) {
    std::string word;
    words >> word;
    int64_t* target = field == 14   ? &user
                      : field == 15 ? &system
                      : field == 20 ? &state.threads
                      : field == 22 ? &state.start_ticks
                      : field == 24 ? &pages
                                    : nullptr;
    if (target != nullptr) std::istringstream(word) >> *target;
  }
  if (!words) return std::nullopt;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  state.pid = pid;
  state.name = line.substr(open + 1, close - open - 1);
  state.cpu_seconds = static_cast<double>(user + system) / ticks;
  state.resident_bytes = pages * ::sysconf(_SC_PAGE_SIZE);
  double uptime = 0;
  std::istringstream(kernel_line(root / "proc/uptime")) >> uptime;
  state.age_seconds = std::max(0.0, uptime - static_cast<double>(state.start_ticks) / ticks);
  return state;
}

}  // namespace tanren
