// How a command is sent to a fork_server: its standard streams with the number of bytes that
// follow; then the number of words, the folder, the words and the environment, each with a zero at
// its end. The server answers with the process and, at its end, with its status. See forked.h.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

// The address of the server `name`, an abstract one, and its length.
inline socklen_t fork_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path + 1, name.c_str(), sizeof address.sun_path - 2);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// The connection, on which the status will come, and the process; -1 if there is no such server.
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
  if (sent && ::recv(connection, &process, sizeof process, MSG_WAITALL) == sizeof process) {
    return connection;
  }
  ::close(connection);
  return -1;
}

// Of a message that send_fork_request wrote; false if it broke off.
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
    if (got <= 0) return false;
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
