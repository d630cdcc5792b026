// Preloaded into tanren: when its libraries are loaded, it forks for each command that comes from a
// fork_client over the socket that TANREN_FORK_SERVER names. A fork goes on as the program would
// have, with its own constructors and main. See forked.h.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

int wake_ends[2];

void wake(int) {
  const int before = errno;
  [[maybe_unused]] const ssize_t written = ::write(wake_ends[1], "", 1);
  errno = before;
}

struct Request {
  int streams[3];  // standard input, output and error
  std::vector<std::string> environment, words;
  std::string folder;
};

// See fork_client.cpp for the format. False at the end of the input.
bool receive(int client, Request& request) {
  uint64_t size = 0;
  iovec part{&size, sizeof size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.streams)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(client, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof size) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof request.streams)) return false;
  std::memcpy(request.streams, CMSG_DATA(header), sizeof request.streams);
  std::string text(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = ::read(client, text.data() + at, size - at);
    if (got <= 0) return false;
    at += static_cast<size_t>(got);
  }
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < size; begin = text.find('\0', begin) + 1) {
    lines.emplace_back(text.c_str() + begin);
  }
  const auto num_words = static_cast<size_t>(std::stoul(lines.at(0)));
  request.folder = lines.at(1);
  request.words.assign(lines.begin() + 2, lines.begin() + 2 + static_cast<long>(num_words));
  request.environment.assign(lines.begin() + 2 + static_cast<long>(num_words), lines.end());
  return true;
}

// Makes this process, a fork of the server, what the command's own process would be.
void become(Request& request, std::vector<char*>& arguments) {
  std::signal(SIGCHLD, SIG_DFL);
  for (int i = 0; i < 3; ++i) ::dup2(request.streams[i], i);
  if (::chdir(request.folder.c_str()) != 0) ::_exit(127);
  ::clearenv();
  for (const std::string& variable : request.environment) {
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  for (std::string& word : request.words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
}

int listener(const char* name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);  // an abstract name
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket, 64) != 0) {
    ::_exit(127);
  }
  return socket;
}

// Returns in a fork alone.
std::vector<char*> serve(const char* name) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the test's end is the server's
  const int listening = listener(name);
  if (::pipe2(wake_ends, O_CLOEXEC | O_NONBLOCK) != 0) ::_exit(127);
  struct sigaction action {};
  action.sa_handler = wake;
  ::sigaction(SIGCHLD, &action, nullptr);
  if (::write(STDOUT_FILENO, "ready\n", 6) != 6) ::_exit(127);
  std::map<pid_t, int> clients;
  for (;;) {
    pollfd ready[2] = {{listening, POLLIN, 0}, {wake_ends[0], POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) continue;
    char drained[64];
    while (::read(wake_ends[0], drained, sizeof drained) > 0) {
    }
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      ::send(clients[pid], &status, sizeof status, MSG_NOSIGNAL);
      ::close(clients[pid]);
      clients.erase(pid);
    }
    if ((ready[0].revents & POLLIN) == 0) continue;
    const int client = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    static Request request;
    if (client < 0 || !receive(client, request)) continue;
    const pid_t pid = ::fork();
    if (pid == 0) {
      static std::vector<char*> arguments;
      become(request, arguments);
      for (const int own : {listening, wake_ends[0], wake_ends[1], client}) ::close(own);
      for (const int stream : request.streams) ::close(stream);
      for (const auto& [other, connection] : clients) ::close(connection);
      return arguments;
    }
    for (const int stream : request.streams) ::close(stream);
    clients[pid] = client;
  }
}

}  // namespace

using Main = int (*)(int, char**, char**);
using Hook = void (*)();

// The C library's start of a program: all shared libraries are loaded and initialised.
extern "C" __attribute__((visibility("default"))) int __libc_start_main(
    Main main, int argc, char** argv, Hook init, Hook fini, Hook unload, void* stack_end) {
  const auto start = reinterpret_cast<int (*)(Main, int, char**, Hook, Hook, Hook, void*)>(
      ::dlsym(RTLD_NEXT, "__libc_start_main"));
  const char* name = ::getenv("TANREN_FORK_SERVER");
  if (name == nullptr) return start(main, argc, argv, init, fini, unload, stack_end);
  static std::vector<char*> arguments = serve(name);
  return start(main, static_cast<int>(arguments.size()) - 1, arguments.data(), init, fini, unload,
               stack_end);
}
