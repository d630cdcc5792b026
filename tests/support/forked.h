// Runs the commands of tests as forks of one process that has loaded the program's libraries: the
// loading takes most of the time of a short command. From its main on, a command is the program
// itself. The calls of crash_points.cpp are active if the test has that file, and fsync does not
// wait for the disk (no_flush.cpp). Tests start the program itself instead if they limit or measure
// processes, close standard streams, or set variables that libraries read at loading. Torch-free.
// Included by tests only.
#pragma once

#include "tests/support/child.h"
#include "tests/support/fork_request.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tanren::testing {

class ForkServer {
 public:
  explicit ForkServer(const std::string& program)
      : name_("tanren-forks-" + std::to_string(::getpid()) + "-" +
              std::filesystem::path(program).filename().string()),
        server_({program}, {preload(), "TANREN_FORK_SERVER=" + name_}) {
    if (!server_.await("ready\n", std::chrono::seconds(120))) {
      throw std::runtime_error("no server of forks: " + server_.text());
    }
  }
  const std::string& name() const { return name_; }

  // As Child(command, environment).
  Child start(const std::vector<std::string>& command,
              const std::vector<std::string>& environment) const {
    ForkRequest request;
    request.folder = std::filesystem::current_path().string();
    request.words = command;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      request.environment.emplace_back(*variable);
    }
    // (Of two values the later one is taken.)
    request.environment.insert(request.environment.end(), environment.begin(), environment.end());
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    request.streams[1] = request.streams[2] = ends[1];
    pid_t process = -1;
    const int connection = send_fork_request(name_, request, process);
    const int error = errno;
    ::close(ends[1]);
    if (connection < 0) {
      ::close(ends[0]);
      throw std::runtime_error("cannot start " + command.front() + ": " + std::strerror(error));
    }
    return {process, ends[0], connection};
  }

  // The server of `program`, which the first call starts. Null if forks are not possible.
  static const ForkServer* of(const std::string& program) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return nullptr;  // a sanitizer must be the first library that is loaded
#endif
    // A bundle of scripts/gpu-bundle has no client.
    if (::access(TANREN_FORK_CLIENT, X_OK) != 0) return nullptr;
    open_closed_streams();  // before a pipe takes their numbers
    static std::map<std::string, ForkServer> servers;
    return &servers.try_emplace(program, program).first->second;
  }

 private:
  static std::string preload() {
    std::string libraries = "LD_PRELOAD=";
#ifdef TANREN_CRASH_POINTS
    libraries += TANREN_CRASH_POINTS ":";  // first: both have an fsync
#endif
    return libraries + TANREN_FORK_SERVER;
  }

  std::string name_;
  Child server_;
};

// The beginning of a shell line that runs `program` as a fork. The fork takes `name` for its own
// name. Assignments and exec may precede this text. Signals to the line's process do not reach the
// fork.
inline std::string forked(const std::string& program, const std::string& name) {
  const ForkServer* server = ForkServer::of(program);
  return server == nullptr ? name : TANREN_FORK_CLIENT " " + server->name() + " " + name;
}
#ifdef TANREN_BINARY
inline std::string forked_tanren(const std::string& name = TANREN_BINARY) {
  return forked(TANREN_BINARY, name);
}
#endif

// As Child(command, environment): signals reach it.
inline Child forked_child(const std::vector<std::string>& command,
                          const std::vector<std::string>& environment = {}) {
  const ForkServer* server = ForkServer::of(command.front());
  return server == nullptr ? Child(command, environment) : server->start(command, environment);
}

}  // namespace tanren::testing
