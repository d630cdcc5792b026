#include "cli/launch/child_processes.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "cli/stop_signals.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

// Keeps descriptors 0 to 2 open: a closed one would be reused for a pipe, and a child would take
// that pipe for its output.
void open_standard_descriptors() {
  int descriptor = 0;
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = ::open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
}

// Closes the descriptors that exec would close.
void close_marked_descriptors() {
  std::vector<int> marked;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0) marked.push_back(descriptor);
  }
  for (const int descriptor : marked) ::close(descriptor);
}

// The child has one thread, this one, so any function may be called.
[[noreturn]] void run_in_place(const ChildStart& start) noexcept {
  close_marked_descriptors();
  ::clearenv();
  for (const auto& entry : start.environment) {
    const size_t sign = entry.find('=');
    if (sign != std::string::npos) {
      ::setenv(entry.substr(0, sign).c_str(), entry.c_str() + sign + 1, 1);
    }
  }
  const int code = start.in_place(start.arguments);
  std::fflush(nullptr);
  ::_exit(code);  // atexit handlers belong to the process that started it
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

ChildEnd end_of(size_t child, int status, const rusage& used) {
  return {.child = child,
          .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
          .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          .cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime),
          .peak_bytes = static_cast<int64_t>(used.ru_maxrss) * 1024};
}

}  // namespace

bool has_one_thread() {
  std::error_code error;
  const fs::directory_iterator tasks("/proc/self/task", error);
  return !error && std::distance(begin(tasks), end(tasks)) == 1;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string signal_text(int signal) {
  const char* what = ::sigdescr_np(signal);
  return fmt::format("signal {}{}", signal, what ? " (" + std::string(what) + ")" : "");
}

std::string ChildProcesses::tagged(const std::string& text) const {
  return "[" + speaker_.name + "] " + text;
}

ChildProcesses::ChildProcesses(Speaker speaker) : speaker_(std::move(speaker)) {
  open_standard_descriptors();
  // Orphans in a child's group become our children, so that their end is reported to us.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::signal(SIGCHLD, SIG_DFL);  // if it were ignored, children would leave no exit status
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &pipe_before_);
  sigset_t heard;
  ::sigemptyset(&heard);
  for (const int signal : {SIGINT, SIGTERM, SIGTSTP, SIGCHLD}) ::sigaddset(&heard, signal);
  if (!hang_up_is_ignored()) ::sigaddset(&heard, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &heard, &mask_before_);
  signals_ = ::signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) {
    throw RunError(tagged("no signals can be heard: " + std::string(std::strerror(errno))));
  }
}

ChildProcesses::~ChildProcesses() {
  send(SIGKILL);
  while (any_left()) {
    collect();
    if (any_left()) ::usleep(1000);
  }
  if (guard_pipe_ >= 0) ::close(guard_pipe_);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
  while (next_signal()) {  // a signal that came meanwhile would end us once unblocked
  }
  ::close(signals_);
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void ChildProcesses::start_guard() {
  std::array<int, 2> ends{};
  const std::string name = speaker_.name + "-guard";
  if (::pipe2(ends.data(), O_CLOEXEC) < 0 || (guard_ = ::fork()) < 0) {
    throw RunError(tagged("cannot start a process: " + std::string(std::strerror(errno))));
  }
  if (guard_ == 0) guard(ends[0], name.c_str());
  ::close(ends[0]);
  guard_pipe_ = ends[1];
}

// Reads from `pipe` the number of each group that starts, and the negated number of each group that
// ends. The pipe closes when the owner ends, in whatever way. Then kills the groups that are left.
// Only async-signal-safe calls are allowed after the fork.
void ChildProcesses::guard(int pipe, const char* name) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, name);
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(STDOUT_FILENO, ~0U, 0);
  std::array<pid_t, kMostChildren> groups{};  // 0: none
  const auto put = [&](pid_t before, pid_t now) {
    const auto place = std::find(groups.begin(), groups.end(), before);
    if (place != groups.end()) *place = now;
  };
  for (const Child& child : children_) {
    if (!child.group_ended) put(0, child.pid);
  }
  pid_t told = 0;
  while (::read(STDIN_FILENO, &told, sizeof told) == sizeof told) {
    if (told > 0) put(0, told);
    if (told < 0) put(-told, 0);
  }
  for (const pid_t group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

// If the guard was killed, the children still die with this process.
void ChildProcesses::tell_guard(pid_t group) const {
  if (guard_ <= 0) return;  // none is wanted, or it has ended: nobody reads the pipe
  [[maybe_unused]] const ssize_t ignored = ::write(guard_pipe_, &group, sizeof group);
}

// Runs in the child: only async-signal-safe calls.
void ChildProcesses::set_up(const ChildStart& start, pid_t parent, int input) const {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  ::dup2(input, STDIN_FILENO);
  if (start.out >= 0) {
    ::dup2(start.out, STDOUT_FILENO);
  } else {
    // A background process may be stopped for writing to the terminal (stty tostop); prevents that.
    ::signal(SIGTTOU, SIG_IGN);
  }
  ::dup2(start.err, STDERR_FILENO);
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

pid_t ChildProcesses::start(const ChildStart& start) {
  const std::vector<char*> arguments = pointers_to(start.arguments);
  const std::vector<char*> environment = pointers_to(start.environment);
  const auto fail = [&](int error) {
    return tagged(start.program + " cannot be started: " + std::strerror(error));
  };
  std::array<int, 2> errors{};
  if (num_left() >= kMostChildren) throw RunError(fail(EAGAIN) + "; " + speaker_.advice);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || ::pipe2(errors.data(), O_CLOEXEC) < 0) {
    const std::string line = fail(errno) + "; " + speaker_.advice;
    if (input >= 0) ::close(input);
    throw RunError(line);
  }
  const pid_t parent = ::getpid();
  const bool in_place = start.in_place && has_one_thread();
  if (in_place) std::fflush(nullptr);  // the child must not write what is buffered here
  const pid_t pid = ::fork();
  if (pid == 0) {
    set_up(start, parent, input);
    if (in_place) run_in_place(start);
    ::execve(start.program.c_str(), arguments.data(), environment.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t ignored = ::write(errors[1], &error, sizeof error);
    ::_exit(127);
  }
  int error = pid < 0 ? errno : 0;
  ::close(input);
  ::close(errors[1]);
  if (pid > 0) {
    ::setpgid(pid, pid);  // parent and child both call this, in either order
    children_.push_back({pid});
    tell_guard(pid);
    // The read ends when the other end is closed, by a successful exec or by the child that runs in
    // place.
    [[maybe_unused]] const ssize_t ignored = ::read(errors[0], &error, sizeof error);
  }
  ::close(errors[0]);
  if (pid < 0) throw RunError(fail(error) + "; " + speaker_.advice);
  if (error != 0) {  // the child never became the program, and does not count
    tell_guard(-pid);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    children_.pop_back();
    throw ConfigError(fail(error) + "; name a program that runs by itself");
  }
  return pid;
}

std::optional<int> ChildProcesses::next_signal() {
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::vector<ChildEnd> ChildProcesses::collect() {
  std::vector<ChildEnd> ends;
  int status = 0;
  pid_t pid = 0;
  rusage used{};
  while ((pid = ::wait4(-1, &status, WNOHANG, &used)) > 0) {
    if (pid == guard_) guard_ = 0;
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (child.pid != pid || child.ended) continue;
      child.ended = true;
      ends.push_back(end_of(i, status, used));
    }
  }
  for (Child& child : children_) {
    if (!child.ended || child.group_ended) continue;
    // Members of the group whose parents ended are our children. While one of them lives, no other
    // process can get the group's number.
    siginfo_t info{};
    const auto group = static_cast<id_t>(child.pid);
    if (::waitid(P_PGID, group, &info, WEXITED | WNOHANG | WNOWAIT) == 0) continue;
    child.group_ended = true;
    tell_guard(-child.pid);
  }
  return ends;
}

void ChildProcesses::send(int signal) {
  for (const Child& child : children_) {
    if (!child.group_ended) ::kill(-child.pid, signal);
  }
}

void ChildProcesses::send(size_t child, int signal) {
  const Child& one = children_.at(child);
  if (!one.group_ended) ::kill(-one.pid, signal);
}

int64_t ChildProcesses::num_left() const {
  return std::count_if(children_.begin(), children_.end(),
                       [](const Child& child) { return !child.group_ended; });
}

bool ChildProcesses::any_left() const { return num_left() > 0; }

bool ChildProcesses::any_running() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return !child.ended; });
}

}  // namespace tanren::cli
