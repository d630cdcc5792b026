// Preloaded into a program. When the program's libraries are loaded, it forks for each command that
// comes over the socket named by TANREN_FORK_SERVER (fork_request.h). A fork continues as the
// program would have, with its own constructors and main. See forked.h.
#include "tests/support/fork_request.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace {

using tanren::testing::ForkRequest;

int wake_ends[2];

void wake(int) {
  const int before = errno;
  [[maybe_unused]] const ssize_t written = ::write(wake_ends[1], "", 1);
  errno = before;
}

// Gives a fork the streams, folder and environment of its command. Returns the arguments.
std::vector<char*> become(ForkRequest& request) {
  std::signal(SIGCHLD, SIG_DFL);
  for (int i = 0; i < 3; ++i) ::dup2(request.streams[i], i);
  for (const int stream : request.streams) ::close(stream);
  if (::chdir(request.folder.c_str()) != 0) ::_exit(127);
  ::clearenv();
  for (const std::string& variable : request.environment) {
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  std::vector<char*> arguments;
  for (std::string& word : request.words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return arguments;
}

int listener(const char* name) {
  sockaddr_un address;
  const socklen_t length = tanren::testing::fork_address(name, address);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool listens = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                       ::listen(socket, 64) == 0;
  if (!listens) ::_exit(127);
  return socket;
}

struct Fork {
  int connection = -1;  // -1 when the client has left
  bool has_ended = false;
};
using Forks = std::map<pid_t, Fork>;

// Whether the client is gone. A client that still waits sends nothing.
bool has_left(int connection) {
  char none = 0;
  const ssize_t got = ::recv(connection, &none, sizeof none, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Sends the status of ended forks to their clients, and reaps those whose clients have left.
void collect(Forks& forks) {
  for (auto at = forks.begin(); at != forks.end();) {
    const pid_t pid = at->first;
    Fork& fork = at->second;
    siginfo_t end{};
    const int flags = WEXITED | WNOHANG | WNOWAIT;
    if (!fork.has_ended && ::waitid(P_PID, pid, &end, flags) == 0 && end.si_pid == pid) {
      fork.has_ended = true;
      const int status = end.si_code == CLD_EXITED ? end.si_status << 8 : end.si_status;
      ::send(fork.connection, &status, sizeof status, MSG_NOSIGNAL);
    }
    const bool is_alone = fork.connection < 0 || has_left(fork.connection);
    const bool is_over = is_alone && fork.has_ended;
    if (is_over) ::waitpid(pid, nullptr, 0);  // before close() tells the client
    if (is_alone && fork.connection >= 0) {
      ::close(fork.connection);
      fork.connection = -1;
    }
    at = is_over ? forks.erase(at) : std::next(at);
  }
}

// Returns in a fork alone, with the arguments of its main.
std::vector<char*> serve(const char* name) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the server ends with the test
  const int listening = listener(name);
  if (::pipe2(wake_ends, O_CLOEXEC | O_NONBLOCK) != 0) ::_exit(127);
  struct sigaction action {};
  action.sa_handler = wake;
  action.sa_flags = SA_RESTART;  // while a request is read
  ::sigaction(SIGCHLD, &action, nullptr);
  if (::write(STDOUT_FILENO, "ready\n", 6) != 6) ::_exit(127);
  Forks forks;
  for (;;) {
    std::vector<pollfd> ready = {{listening, POLLIN, 0}, {wake_ends[0], POLLIN, 0}};
    for (const auto& [pid, fork] : forks) ready.push_back({fork.connection, POLLIN, 0});
    if (::poll(ready.data(), ready.size(), -1) < 0) continue;
    char drained[64];
    while (::read(wake_ends[0], drained, sizeof drained) > 0) {
    }
    collect(forks);
    if ((ready[0].revents & POLLIN) == 0) continue;
    const int connection = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    static ForkRequest request;  // outlives main in a fork
    if (connection < 0) continue;
    if (!tanren::testing::receive_fork_request(connection, request)) {
      ::close(connection);  // the client broke off
      continue;
    }
    const pid_t pid = ::fork(), answer = pid < 0 ? -errno : pid;
    if (pid == 0) {
      for (const int own : {listening, wake_ends[0], wake_ends[1], connection}) ::close(own);
      for (const auto& [other, fork] : forks) {
        if (fork.connection >= 0) ::close(fork.connection);
      }
      return become(request);
    }
    for (const int stream : request.streams) ::close(stream);
    ::send(connection, &answer, sizeof answer, MSG_NOSIGNAL);
    if (pid > 0) {
      forks[pid] = {connection};
    } else {
      ::close(connection);
    }
  }
}

}  // namespace

using Main = int (*)(int, char**, char**);
using Hook = void (*)();

// Replaces the C library's start of a program. All shared libraries are initialised before it.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int argc,
                                                                        char** argv, Hook init,
                                                                        Hook fini, Hook unload,
                                                                        void* stack_end) {
  const auto start = reinterpret_cast<int (*)(Main, int, char**, Hook, Hook, Hook, void*)>(
      ::dlsym(RTLD_NEXT, "__libc_start_main"));
  const char* name = ::getenv("TANREN_FORK_SERVER");
  if (name == nullptr) return start(main, argc, argv, init, fini, unload, stack_end);
  static std::vector<char*> arguments = serve(name);
  const auto count = static_cast<int>(arguments.size()) - 1;
  return start(main, count, arguments.data(), init, fini, unload, stack_end);
}
