// fork_client NAME PROGRAM ARGUMENTS…: runs a command of tanren as a fork of the server NAME, in
// this folder, with this environment and these standard streams. It ends as the command does;
// signals to it do not reach the command. PROGRAM is what the command takes for its own name. See
// forked.h.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char** argv) {
  const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char folder[PATH_MAX];
  if (argc < 3 || ::getcwd(folder, sizeof folder) == nullptr) return 127;
  const char* name = argv[1];
  std::strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);  // an abstract name
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    std::perror("fork_client");
    return 127;
  }
  // The number of words, the folder, the words and the environment, each with a zero at its
  // end; before them the bytes in all, with the standard streams.
  std::string text = std::to_string(argc - 2);
  const auto add = [&text](const char* line) { (text += '\0') += line; };
  add(folder);
  for (int i = 2; i < argc; ++i) add(argv[i]);
  for (char** variable = environ; *variable != nullptr; ++variable) add(*variable);
  text += '\0';

  uint64_t size = text.size();
  const int streams[3] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)] = {};
  iovec part{&size, sizeof size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(header), streams, sizeof streams);
  if (::sendmsg(server, &message, MSG_NOSIGNAL) != sizeof size) return 127;
  for (size_t at = 0; at < text.size();) {
    const ssize_t sent = ::send(server, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return 127;
    at += static_cast<size_t>(sent);
  }
  int status = 0;
  if (::recv(server, &status, sizeof status, MSG_WAITALL) != sizeof status) return 127;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  return 127;
}
