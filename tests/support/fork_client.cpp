// fork_client NAME PROGRAM ARGUMENTS…: runs a command as a fork of the server NAME, with this
// folder, this environment and these standard streams. A closed stream becomes /dev/null. The
// client ends with the command's status. Signals to the client do not reach the command. The
// command takes PROGRAM for its own name. See forked.h.
#include "tests/support/fork_request.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  tanren::testing::open_closed_streams();
  char folder[PATH_MAX];
  if (argc < 3 || ::getcwd(folder, sizeof folder) == nullptr) return 127;
  tanren::testing::ForkRequest request;
  request.folder = folder;
  request.words.assign(argv + 2, argv + argc);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    request.environment.emplace_back(*variable);
  }
  pid_t process = 0;
  int status = 0;
  const int connection = tanren::testing::send_fork_request(argv[1], request, process);
  if (connection < 0 || tanren::testing::receive_fork_status(connection, status, true) != 1) {
    std::fprintf(stderr, "fork_client: no answer from %s: %s\n", argv[1], std::strerror(errno));
    return 127;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  return 127;
}
