// A peer program in another language that keeps running beside a benchmark. A line sent to it
// starts one block of work; it answers with the seconds that took. So both sides alternate within
// one run.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tanren::bench {

class PeerProcess {
 public:
  // Starts a program and waits until it prints "ready". If it prints something else first, throws
  // with that text. `patience` is the timeout for each line (0: none). After the timeout, kills the
  // program and throws.
  explicit PeerProcess(const std::vector<std::string>& command, std::chrono::seconds patience = {})
      : patience_(patience) {
    int to[2], from[2];
    // Peers started later must not inherit the pipe, or this peer would never see its end.
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe");
    }
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    if (const std::string said = line(); said != "ready") {
      throw std::runtime_error("the peer did not start: " + said);
    }
  }
  ~PeerProcess() {
    std::fclose(to_);  // ends its loop over stdin
    std::fclose(from_);
    ::waitpid(child_, nullptr, 0);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Runs one more block and returns its seconds.
  double block() { return std::stod(answer()); }
  // Runs one more block and returns the whole answer: seconds, and any further figures.
  std::string answer() {
    start();
    return line();
  }
  // start() and finish() together are answer(), for several peers that must work at the same time.
  void start() {
    std::fputs("go\n", to_);
    std::fflush(to_);
  }
  std::string finish() { return line(); }
  // Ends the program at once, whatever it waits for.
  void kill() { ::kill(child_, SIGKILL); }

 private:
  // Each line is the whole answer to one request, so none is left in the stream's buffer.
  std::string line() {
    await_answer();
    char text[256] = "";
    if (std::fgets(text, sizeof(text), from_) == nullptr) throw std::runtime_error("the peer died");
    std::string read(text);
    return read.substr(0, read.find('\n'));
  }

  void await_answer() {
    if (patience_.count() == 0) return;
    pollfd answer{::fileno(from_), POLLIN, 0};
    const std::chrono::milliseconds wait = patience_;
    if (::poll(&answer, 1, static_cast<int>(wait.count())) != 0) return;
    kill();
    throw std::runtime_error("no answer from the peer within " + std::to_string(patience_.count()) +
                             " s");
  }

  std::chrono::seconds patience_;
  pid_t child_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace tanren::bench
