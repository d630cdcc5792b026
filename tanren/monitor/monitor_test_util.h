// A folder that replaces a machine's root for code that reads /proc and /sys/fs/cgroup: its files
// are written as the kernel would show them. Included by this folder's tests only.
#pragma once

#include "tanren/base/testing.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tanren {

constexpr int64_t kGiB = int64_t{1} << 30;

class FixtureRoot {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }

  void write(const std::string& file, std::string_view text) const {
    std::filesystem::create_directories((path() / file).parent_path());
    folder_.file(file, text);
  }

  // Two cores, 24000 MiB, a swap, up for 1000 s.
  void machine() const {
    write("proc/stat",
          "cpu  100 20 30 400 50 1 2 7 0 0\ncpu0 50 10 15 200 25 1 1 3 0 0\n"
          "cpu1 50 10 15 200 25 0 1 4 0 0\nintr 5 5\nctxt 1\n");
    write("proc/loadavg", "2.06 2.16 2.70 6/109 26961\n");
    write("proc/uptime", "1000.00 1500.00\n");
    write(
        "proc/meminfo",
        "MemTotal:       24576000 kB\nMemFree:        20044284 kB\n"
        "MemAvailable:   21504000 kB\nSwapTotal:       1048576 kB\nSwapFree:         524288 kB\n");
  }

  // A process with 4 threads, 700 ticks of CPU time and 256 resident pages.
  void process(int64_t pid, const std::string& name, int64_t ticks = 700) const {
    const std::string folder = "proc/" + std::to_string(pid) + "/";
    write(folder + "stat", std::to_string(pid) + " (" + name + ") R 1 1 1 0 -1 4194304 100 0 0 0 " +
                               std::to_string(ticks - 200) +
                               " 200 0 0 20 0 4 0 2000 3133440 256 18446744073709551615\n");
    std::filesystem::create_directories(path() / (folder + "fd"));
    std::filesystem::create_directories(path() / (folder + "fdinfo"));
  }

  // The process has `file` open as descriptor `fd`; `owner` holds a lock on it (0: no process).
  void open(int64_t pid, int fd, const std::filesystem::path& file, int64_t owner = 0) const {
    const std::string folder = "proc/" + std::to_string(pid) + "/";
    std::filesystem::create_symlink(file, path() / (folder + "fd") / std::to_string(fd));
    std::string info = "pos:\t0\nflags:\t02100002\n";
    if (owner > 0) {
      info +=
          "lock:\t1: FLOCK  ADVISORY  WRITE " + std::to_string(owner) + " fe:00:11036371 0 EOF\n";
    }
    write(folder + "fdinfo/" + std::to_string(fd), info);
  }

 private:
  testing::TemporaryFolder folder_;
};

}  // namespace tanren
