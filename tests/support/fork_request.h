// The protocol of a fork_server. The client sends its standard streams with the number of bytes
// that follow, then the number of words, the folder, the words and the environment, each with a
// zero at its end. The server answers with the process id, or with minus errno if the fork failed.
// When the process ends, the server sends its status. It reaps the process once the client knows
// the status or is gone. Until then no other process gets the id, so that the client may send
// signals to it. See forked.h.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tanren::testing {

struct ForkRequest {
  int streams[3] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  std::string folder;
  std::vector<std::string> words, environment;  // words: from the program's name on
};

// Opens /dev/null for each standard stream that is closed: a request must have all three.
inline void open_closed_streams() {
  int lowest = STDIN_FILENO;
  do {
    lowest = ::open("/dev/null", O_RDWR);
  } while (lowest >= STDIN_FILENO && lowest <= STDERR_FILENO);
  if (lowest >= 0) ::close(lowest);
}

// Sets `address` to the abstract socket address of the server `name`. Returns its length.
inline socklen_t fork_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path + 1, name.c_str(), sizeof address.sun_path - 2);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Sets `process` and returns the connection on which its status will come. Returns -1, with errno,
// if the server does not exist or cannot fork.
inline int send_fork_request(const std::string& server, const ForkRequest& request,
                             pid_t& process) {
  std::string text = std::to_string(request.words.size()) + '\0' + request.folder + '\0';
  for (const auto* lines : {&request.words, &request.environment}) {
    for (const std::string& line : *lines) (text += line) += '\0';
  }
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t length = fork_address(server, address);
  bool sent = ::connect(connection, reinterpret_cast<const sockaddr*>(&address), length) == 0;

  uint64_t size = text.size();
  iovec part{&size, sizeof size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.streams)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof request.streams);
  std::memcpy(CMSG_DATA(header), request.streams, sizeof request.streams);
  sent = sent && ::sendmsg(connection, &message, MSG_NOSIGNAL) == sizeof size;
  for (size_t at = 0; sent && at < text.size();) {
    const ssize_t now = ::send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    sent = now > 0;
    at += sent ? static_cast<size_t>(now) : 0;
  }
  const ssize_t got =
      sent ? ::recv(connection, &process, sizeof process, MSG_WAITALL) : ssize_t{-1};
  const bool is_answer = got == sizeof process;
  if (is_answer && process > 0) return connection;
  const int error = is_answer ? -process : got < 0 ? errno : ECONNRESET;
  ::close(connection);
  errno = error;
  return -1;
}

// Returns 1 if the process has ended, with `status`, and been reaped. Returns 0 if it runs and
// `waits` is false, or at a signal. Returns -1, with errno, if the server is gone.
inline int receive_fork_status(int connection, int& status, bool waits) {
  const int flags = waits ? MSG_WAITALL : MSG_DONTWAIT;
  const ssize_t got = ::recv(connection, &status, sizeof status, flags);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got >= 0) errno = ECONNRESET;
  if (got != sizeof status) return -1;
  ::shutdown(connection, SHUT_WR);  // the server reaps the process, then closes
  char none = 0;
  while (::recv(connection, &none, sizeof none, 0) < 0 && errno == EINTR) {
  }
  return 1;
}

// Reads a request. Returns false, with no stream left open, if the request is incomplete.
inline bool receive_fork_request(int connection, ForkRequest& request) {
  uint64_t size = 0;
  iovec part{&size, sizeof size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.streams)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const int flags = MSG_CMSG_CLOEXEC | MSG_WAITALL;
  if (::recvmsg(connection, &message, flags) != sizeof size) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof request.streams)) return false;
  std::memcpy(request.streams, CMSG_DATA(header), sizeof request.streams);
  std::string text(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = ::read(connection, text.data() + at, size - at);
    if (got <= 0) {
      for (const int stream : request.streams) ::close(stream);
      return false;
    }
    at += static_cast<size_t>(got);
  }
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < size; begin += lines.back().size() + 1) {
    lines.emplace_back(text.c_str() + begin);
  }
  const auto words = lines.begin() + 2, environment = words + std::stol(lines.at(0));
  request.folder = lines.at(1);
  request.words.assign(words, environment);
  request.environment.assign(environment, lines.end());
  return true;
}

}  // namespace tanren::testing
