// The processes that a verb starts (ranks, trials), and the signals that the verb receives while
// they run. Each child leads its own process group: a terminal's Ctrl-C reaches only this process,
// and processes started by a child end with it. No child outlives this process, however it ends:
// the kernel kills the children (PR_SET_PDEATHSIG), and a guard process kills the rest of their
// groups. One object at a time, on the main thread; used by launch.cpp and the sweep.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren::cli {

constexpr int kMostChildren = 1024;  // at a time

// The verb that starts the children. Errors begin with [name], and the guard process is called
// NAME-guard.
struct Speaker {
  std::string name;
  std::string advice;  // of the error that no process can be created: "start fewer ranks"
};

struct ChildStart {
  std::string program;                   // path of the file
  std::vector<std::string> arguments;    // the program's name first
  std::vector<std::string> environment;  // NAME=value, nothing else is passed on
  int out = -1;                          // becomes its stdout; -1: shares this process's stdout
  int err = -1;                          // becomes its stderr
  // If set, the child calls this function instead of running `program`, provided that this process
  // has one thread. The child then shares the libraries that this process has already loaded. Takes
  // `arguments`, returns the exit code.
  std::function<int(const std::vector<std::string>&)> in_place = {};
};

// How a child ended: with an exit code, or by a signal; and what it used, with those of its own
// children that it has waited for.
struct ChildEnd {
  size_t child = 0;  // in the order of the starts that did not throw
  int code = 0;
  int signal = 0;          // 0: none
  double cpu_seconds = 0;  // processor time, of the program and of the kernel for it
  // The peak resident memory of the largest of these processes. A child begins as a copy of this
  // process, so this process's pages count.
  int64_t peak_bytes = 0;
};

class ChildProcesses {
 public:
  // From now on SIGINT, SIGTERM, SIGHUP (unless ignored, as under nohup), SIGTSTP and SIGCHLD have
  // no effect except that next_signal returns them.
  explicit ChildProcesses(Speaker speaker);
  // Kills the processes that are left.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  // The child's standard input is /dev/null, because reading in the terminal's background would
  // stop it. ConfigError if the program cannot be run, RunError if no process can be created or
  // kMostChildren are left.
  pid_t start(const ChildStart& start);
  // Starts the guard of the children started so far and later. Until then only the kernel ends
  // them.
  void start_guard();

  // Readable when next_signal has a signal.
  int signals() const { return signals_; }
  std::optional<int> next_signal();

  // The children that ended since the last call. Other members of their groups may still run.
  std::vector<ChildEnd> collect();
  // Sends `signal` to every group that has processes left, or to the group of the one `child`
  // (numbered as ChildEnd::child).
  void send(int signal);
  void send(size_t child, int signal);
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
  [[noreturn]] void guard(int pipe, const char* name);
  void tell_guard(pid_t group) const;
  int64_t num_left() const;
  std::string tagged(const std::string& text) const;

  Speaker speaker_;
  std::vector<Child> children_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  int signals_ = -1;
  pid_t guard_ = 0;
  int guard_pipe_ = -1;
};

// Whether this process has one thread. If so, its forked child may call any function.
bool has_one_thread();

// Pointers to the words, which must outlive them, and a null pointer at the end, as C functions
// expect.
std::vector<char*> pointers_to(const std::vector<std::string>& words);

// "signal 9 (Killed)"
std::string signal_text(int signal);

}  // namespace tanren::cli
