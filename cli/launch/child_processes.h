// The processes that `tanren launch` starts, and the signals that it gets meanwhile. Each child
// leads its own process group: a terminal's Ctrl-C reaches only the launcher, and processes started
// by a child end with it. No child outlives this process, however it ends: the kernel kills the
// children (PR_SET_PDEATHSIG), a guard process kills the rest of their groups. One object at a
// time, on the main thread; used by launch.cpp.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren::cli {

constexpr int kMostChildren = 1024;  // of one launcher

struct ChildStart {
  std::string program;                   // path of the file
  std::vector<std::string> arguments;    // the program's name first
  std::vector<std::string> environment;  // NAME=value, nothing else is passed on
  int out = -1;                          // becomes its stdout; -1: shares this process's stdout
  int err = -1;                          // becomes its stderr
  // If set, called in the child instead of running `program`, as long as this process has one
  // thread: libraries that it has loaded are then available at once, and shared. Takes `arguments`,
  // returns the exit code.
  std::function<int(const std::vector<std::string>&)> in_place = {};
};

// How a child ended: with an exit code, or by a signal.
struct ChildEnd {
  size_t child = 0;  // in the order of the starts
  int code = 0;
  int signal = 0;  // 0: none
};

class ChildProcesses {
 public:
  // From now on SIGINT, SIGTERM, SIGHUP (unless ignored, as under nohup), SIGTSTP and SIGCHLD have
  // no effect except that next_signal returns them.
  ChildProcesses();
  // Kills the processes that are left.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  // The child's standard input is /dev/null, because reading in the terminal's background would
  // stop it. ConfigError if the program cannot be run, RunError if no process can be created.
  pid_t start(const ChildStart& start);
  // Starts the guard of the children started so far. Until then only the kernel ends them.
  void start_guard();

  // Readable when next_signal has a signal.
  int signals() const { return signals_; }
  std::optional<int> next_signal();

  // The children that ended since the last call. Other members of their groups may still run.
  std::vector<ChildEnd> collect();
  // Sends `signal` to every group that has processes left.
  void send(int signal);
  // Whether any child, or any process of its group, is left (as of the last collect).
  bool any_left() const;
  // Whether any child itself is left.
  bool any_running() const;

 private:
  struct Child {
    pid_t pid = 0;  // also the id of its group
    bool ended = false;
    bool group_ended = false;
  };

  void set_up(const ChildStart& start, pid_t parent, int input) const;
  [[noreturn]] void guard(int pipe);

  std::vector<Child> children_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  int signals_ = -1;
  pid_t guard_ = 0;
  int guard_pipe_ = -1;
};

// The words as C's functions expect them, with a null pointer behind them.
std::vector<char*> pointers_to(const std::vector<std::string>& words);

// "signal 9 (Killed)"
std::string signal_text(int signal);

}  // namespace tanren::cli
