// Commands of tanren for tests, as forks of one process that has loaded the program's libraries,
// which takes most of the time of a short command. A command is the program itself from its main
// on; where a test has crash_points.cpp, its calls are in place. Tests that send signals, limit or
// measure processes, or set what libraries read when they are loaded, start TANREN_BINARY instead.
// Torch-free. Included by tests only.
#pragma once

#include "tests/support/child.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace tanren::testing {

class ForkServer {
 public:
  ForkServer()
      : name_("tanren-forks-" + std::to_string(::getpid())),
        server_({TANREN_BINARY}, {preload(), "TANREN_FORK_SERVER=" + name_}) {
    if (!server_.await("ready\n", std::chrono::seconds(120))) {
      throw std::runtime_error("no server of forks: " + server_.text());
    }
  }
  // `program`: what the command takes for its own name.
  std::string command(const std::string& program) const {
    return TANREN_FORK_CLIENT " " + name_ + " " + program;
  }

 private:
  static std::string preload() {
    std::string libraries = std::string("LD_PRELOAD=") + TANREN_FORK_SERVER;
#ifdef TANREN_CRASH_POINTS
    libraries += std::string(":") + TANREN_CRASH_POINTS;
#endif
    return libraries;
  }

  std::string name_;
  Child server_;
};

// The beginning of a shell line that runs tanren; may come after assignments and after exec.
inline std::string forked_tanren(const std::string& program = TANREN_BINARY) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return program;  // a sanitizer must be loaded first
#else
  if (::access(TANREN_FORK_CLIENT, X_OK) != 0) return program;  // in a bundle of scripts/gpu-bundle
  static const ForkServer server;
  return server.command(program);
#endif
}

}  // namespace tanren::testing
