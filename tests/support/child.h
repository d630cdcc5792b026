// A child process that a test starts, whose output it reads and which it may kill: for ranks that
// are real processes. Torch-free. Not thread-safe; the destructor kills and reaps the process.
#pragma once

#include "tests/support/fork_request.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

namespace tanren::testing {

class Child {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads stdout and stderr as one text. `environment`: NAME=value, added to the test's own.
  explicit Child(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment = {}) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::vector<char*> words = pointers(command), variables = pointers(environment);
    variables.pop_back();
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string name =
          std::string(*variable).substr(0, std::string(*variable).find('=') + 1);
      const bool is_given = std::any_of(environment.begin(), environment.end(),
                                        [&](const auto& one) { return one.rfind(name, 0) == 0; });
      if (!is_given) variables.push_back(*variable);
    }
    variables.push_back(nullptr);
    const int error =
        ::posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), variables.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    output_ = ends[0];
    if (error != 0) {
      ::close(output_);
      throw std::runtime_error("cannot start " + command.front());
    }
  }
  // A process whose parent is a fork_server. The server sends its status over `server`. Its output
  // comes from `output`. See forked.h.
  Child(pid_t pid, int output, int server) : pid_(pid), output_(output), server_(server) {}
  ~Child() {
    signal(SIGKILL);
    if (pid_ > 0 && !ended_) reap(0);
    for (const int end : {output_, server_}) {
      if (end >= 0) ::close(end);
    }
  }
  Child(Child&& other) noexcept
      : pid_(other.pid_),
        output_(other.output_),
        server_(other.server_),
        ended_(other.ended_),
        code_(other.code_),
        text_(std::move(other.text_)) {
    other.pid_ = -1;
    other.output_ = other.server_ = -1;
  }
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  // Sends nothing once the process is reaped: its id may belong to another process by then.
  void signal(int number) const {
    if (pid_ > 0 && !ended_) ::kill(pid_, number);
  }
  // Peak resident memory in bytes, known once the process has ended. 0 for a fork_server's process.
  int64_t peak_bytes() const { return peak_bytes_; }
  // The output so far.
  const std::string& text() const { return text_; }

  // Reads until the output contains `part` and returns true; false at its end or after `patience`.
  bool await(const std::string& part, std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    while (text_.find(part) == std::string::npos) {
      if (!read_some(end)) return text_.find(part) != std::string::npos;
    }
    return true;
  }

  // Reads until the process ends. Returns its exit code, or 128 + signal as in a shell; -1 if
  // `patience` is over first or its fork_server is gone.
  int ended(std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    while (read_some(end)) {
    }
    while (!ended_ && Clock::now() < end) {
      if (!reap(WNOHANG)) ::usleep(1000);
    }
    return ended_ ? code_ : -1;
  }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> all;
    all.reserve(texts.size() + 1);
    for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
  }

  // False if the output or the time has ended.
  bool read_some(Clock::time_point end) {
    if (output_ < 0) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{output_, POLLIN, 0};
    const int num_ready = ::poll(&ready, 1, static_cast<int>(left.count()));
    if (num_ready <= 0) return num_ready < 0 && errno == EINTR;
    char buffer[4096];
    const ssize_t num = ::read(output_, buffer, sizeof buffer);
    if (num > 0) {
      text_.append(buffer, static_cast<size_t>(num));
      return true;
    }
    ::close(output_);
    output_ = -1;
    return false;
  }

  bool reap(int options) {
    int status = 0;
    rusage used{};
    if (server_ >= 0) {
      const int told = receive_fork_status(server_, status, options != WNOHANG);
      if (told == 0) return false;
      ended_ = true;
      if (told < 0) return true;  // the status is lost
    } else if (::wait4(pid_, &status, options, &used) != pid_) {
      return false;
    }
    peak_bytes_ = int64_t{used.ru_maxrss} << 10;
    ended_ = true;
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
  }

  pid_t pid_ = -1;
  int output_ = -1, server_ = -1;
  bool ended_ = false;
  int code_ = -1;
  int64_t peak_bytes_ = 0;
  std::string text_;
};

}  // namespace tanren::testing
