// The processes that `tanren launch` starts, and the signals that it hears meanwhile. Each child leads a
// process group of its own: a terminal's Ctrl-C reaches the launcher alone, and what a child starts in
// turn ends with it. Nothing of them outlives this process, however that ends: the kernel kills the
// children themselves (PR_SET_PDEATHSIG), a guard process the rest of their groups.
// One object at a time, on the main thread; used by launch.cpp.
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
  std::vector<std::string> arguments;    // its name first
  std::vector<std::string> environment;  // NAME=value, nothing else is passed on
  int out = -1;                          // becomes its stdout; -1: it shares this process's
  int err = -1;                          // becomes its stderr
  // Called in the child instead of running `program`, as long as this process has one thread: what it
  // has loaded is then there at once, and shared. Takes `arguments`, returns the exit code.
  std::function<int(std::vector<std::string>&)> go_on = {};
};

// How a child ended: by itself with a code, or by a signal.
struct ChildEnd {
  size_t child = 0;  // in the order of the starts
  int code = 0;
  int signal = 0;  // 0: none
};

class ChildProcesses {
 public:
  // From here on SIGINT, SIGTERM, SIGHUP (unless ignored, as under nohup), SIGTSTP and SIGCHLD end
  // nothing: they are read with next_signal.
  ChildProcesses();
  // Kills what is left.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  // Its standard input is /dev/null: in the background of the terminal, reading would stop it.
  // ConfigError if the program cannot be run, RunError if there is no process to be had.
  pid_t start(const ChildStart& start);

  // Readable when next_signal has one.
  int signals() const { return signals_; }
  std::optional<int> next_signal();

  // The children that ended since the last call. Their groups may have members left.
  std::vector<ChildEnd> collect();
  // To every process of the groups that have any left.
  void send(int signal);
  // Whether a child, or a process of its group, is left (as of the last collect).
  bool any_left() const;
  // Whether a child itself is left.
  bool any_running() const;

 private:
  struct Child {
    pid_t pid = 0;  // and of its group
    bool ended = false;
    bool group_ended = false;
  };

  void start_guard();
  void tell_guard(pid_t group) const;

  std::vector<Child> children_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  int signals_ = -1;
  pid_t guard_ = 0;
  int guard_pipe_ = -1;
};

// "signal 9 (Killed)"
std::string signal_text(int signal);

}  // namespace tanren::cli
