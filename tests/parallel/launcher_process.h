// `tanren launch` as a child process, started without a shell (a shell's background jobs ignore
// SIGINT). Its output goes to files; left() lists its processes that still live. Torch-free.
// Included by tests only; TANREN_BINARY names the program.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/seconds.h"
#include "tanren/base/testing.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tanren::testing {

// Whether `condition` becomes true within `seconds`.
inline bool comes_true(const std::function<bool()>& condition, double seconds = 60) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    if (seconds_since(start) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class LauncherProcess {
 public:
  // Starts `tanren launch ARGUMENTS…` in `folder`, whose path marks it and all its descendants.
  LauncherProcess(const std::filesystem::path& folder, const std::vector<std::string>& arguments)
      : folder_(folder) {
    pid_ = ::fork();
    if (pid_ == 0) {
      if (::chdir(folder.c_str()) != 0) ::_exit(99);
      ::setenv("LAUNCHER_PROCESS", folder.c_str(), 1);
      open_as(STDOUT_FILENO, "out");
      open_as(STDERR_FILENO, "err");
      std::vector<std::string> words = {"tanren", "launch"};
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> pointers;
      pointers.reserve(words.size() + 1);
      for (auto& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::execv(TANREN_BINARY, pointers.data());
      ::_exit(99);
    }
  }
  ~LauncherProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }

  // Returns its exit code, or 128 + signal; -1 if it does not end within `seconds`.
  int wait(double seconds = 60) {
    int status = 0;
    if (!comes_true([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, seconds)) return -1;
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  std::string out() const { return read_file(folder_ / "out"); }
  std::string err() const { return read_file(folder_ / "err"); }

  // The live processes among itself and its descendants; zombies do not count.
  std::vector<pid_t> left() const {
    std::vector<pid_t> pids;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream in(entry.path() / "environ", std::ios::binary);
      const std::string environment((std::istreambuf_iterator<char>(in)), {});
      if (contains(environment, "LAUNCHER_PROCESS=" + folder_.string())) {
        pids.push_back(std::stoi(name));
      }
    }
    return pids;
  }

 private:
  static void open_as(int descriptor, const char* name) {
    const int file = ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    ::dup2(file, descriptor);
    ::close(file);
  }

  std::filesystem::path folder_;
  pid_t pid_ = 0;
};

}  // namespace tanren::testing
