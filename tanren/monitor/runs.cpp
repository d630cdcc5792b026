#include "tanren/monitor/runs.h"

#include "tanren/base/text.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// A process with a lock file open; `owns`: it also holds the lock.
struct Holder {
  int64_t pid = 0;
  bool owns = false;
};

// Whether the descriptor's fdinfo has "lock:      1: FLOCK  ADVISORY  WRITE <pid> …". A process
// that was refused the folder also has the file open for a moment, but without such a line.
bool owns_lock(const fs::path& info, int64_t pid) {
  std::ifstream file(info);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("lock:", 0) != 0) continue;
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      if (word == to_text(pid)) return true;
    }
  }
  return false;
}

std::optional<int64_t> pid_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t pid = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return pid;
}

// Adds the run folders whose lock file the process has open.
void add_locks(const fs::path& process, int64_t pid, std::map<fs::path, Holder>& holders) {
  std::error_code gone;  // also set for another user's process
  for (fs::directory_iterator at(process / "fd", gone), end; !gone && at != end;
       at.increment(gone)) {
    std::error_code closed;
    const fs::path target = fs::read_symlink(at->path(), closed);
    if (closed || target.filename() != "lock") continue;
    const fs::path folder = target.parent_path();
    if (!fs::is_regular_file(folder / "config.toml", closed)) continue;
    const Holder holder{pid, owns_lock(process / "fdinfo" / at->path().filename(), pid)};
    // Forked children share the descriptor: prefer the process that locked, then the oldest.
    const auto [found, is_new] = holders.try_emplace(folder, holder);
    if (is_new || found->second.owns) continue;
    if (holder.owns || holder.pid < found->second.pid) found->second = holder;
  }
}

}  // namespace

int64_t planned_steps(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_regular_file(folder / "plan.txt", none)) return 0;
  std::ifstream file(folder / "plan.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);  // total_steps  700  asked  …
    std::string key;
    int64_t steps = 0;
    if (words >> key && key == "total_steps" && words >> steps) return std::max<int64_t>(0, steps);
  }
  return 0;
}

std::optional<double> seconds_since_write(const fs::path& file) {
  struct stat status {};
  timespec now{};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const double age = static_cast<double>(now.tv_sec - status.st_mtim.tv_sec) +
                     1e-9 * static_cast<double>(now.tv_nsec - status.st_mtim.tv_nsec);
  return std::max(0.0, age);
}

std::optional<double> RunStatus::seconds_left() const {
  if (total_steps <= 0 || !log || log->seconds_per_step <= 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, total_steps - log->step)) * log->seconds_per_step;
}

bool RunStatus::is_starting() const {
  return !log || !log_age_seconds || *log_age_seconds > process.age_seconds;
}

std::vector<RunStatus> find_runs(const fs::path& root) {
  std::map<fs::path, Holder> holders;
  std::error_code failed;
  for (fs::directory_iterator at(root / "proc", failed), end; !failed && at != end;
       at.increment(failed)) {
    if (const auto pid = pid_of(at->path())) add_locks(at->path(), *pid, holders);
  }
  std::vector<RunStatus> runs;
  for (const auto& [folder, holder] : holders) {
    const auto process = read_process(holder.pid, root);
    if (!process) continue;
    RunStatus run{.folder = folder, .process = *process};
    run.total_steps = planned_steps(folder);
    run.log_age_seconds = seconds_since_write(folder / "log.jsonl");
    run.log = read_log_tail(folder / "log.jsonl");
    runs.push_back(std::move(run));
  }
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.process.pid < b.process.pid; });
  return runs;
}

}  // namespace tanren
