#include "tanren/comm/sockets.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace tanren {

namespace {

using SocketClock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), to_text(port).c_str(), &hints, &found);
  if (error != 0) {
    throw ConfigError(fmt::format("[comm] the host \"{}\" has no address: {}; is it spelt right?",
                                  host, ::gai_strerror(error)));
  }
  return {found, &::freeaddrinfo};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(four->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
  }
  return false;
}

bool is_link_local(const sockaddr* address) {  // needs the name of its interface
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string number_of(const sockaddr* address) {
  const socklen_t length =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> name{};
  const int error =
      ::getnameinfo(address, length, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? name.data() : "";
}

// Empty, with errno set, if listening fails.
Socket listener_at(const sockaddr* address, socklen_t length) {
  Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  const int on = 1, off = 0;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket.descriptor(), address, length) != 0) return {};
  if (::listen(socket.descriptor(), SOMAXCONN) != 0) return {};
  return socket;
}

// One attempt. Empty if it fails, with the reason in `why`.
Socket connected_to(const addrinfo& address, SocketClock::time_point end, std::string& why) {
  Socket socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket) {
    why = std::strerror(errno);
    return {};
  }
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS && errno != EINTR) {
    why = std::strerror(errno);
    return {};
  }
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - SocketClock::now());
    pollfd ready{socket.descriptor(), POLLOUT, 0};
    const int num = ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 2000)));
    if (num < 0 && errno == EINTR) continue;
    if (num > 0) break;
    why = "no answer";
    return {};
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) return socket;
  why = std::strerror(error);
  return {};
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket listener_on_all_addresses(int port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  Socket socket = listener_at(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (socket || errno == EADDRINUSE) return socket;
  sockaddr_in four{};  // a machine without IPv6
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  four.sin_port = htons(static_cast<uint16_t>(port));
  return listener_at(reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

Socket listening_socket(const std::string& host, int port, bool from_elsewhere) {
  const Addresses addresses = addresses_of(host, port);
  // A machine may resolve its own name to the loopback, which the others cannot reach.
  Socket socket = !from_elsewhere && is_loopback(addresses->ai_addr)
                      ? listener_at(addresses->ai_addr, addresses->ai_addrlen)
                      : listener_on_all_addresses(port);
  if (socket) return socket;
  const int error = errno;
  const std::string text =
      fmt::format("[comm] cannot receive the other ranks at port {} of {}: {}{}", port, host,
                  std::strerror(error), error == EADDRINUSE ? "; take a free port" : "");
  if (port != 0) throw ConfigError(text);
  throw CommError(text);
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket connected_socket(const std::string& host, int port, SocketClock::time_point end) {
  constexpr std::chrono::milliseconds kFirstPause{2}, kLongestPause{100};
  const Addresses addresses = addresses_of(host, port);
  std::string why;
  auto pause = kFirstPause;
  for (;;) {
    for (const addrinfo* address = addresses.get(); address != nullptr;
         address = address->ai_next) {
      Socket socket = connected_to(*address, end, why);
      if (socket) return socket;
    }
    if (SocketClock::now() + pause >= end) {
      throw CommError(fmt::format("[comm] nobody receives at {}:{}: {}", host, port, why));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

void notice_dead_machine(int descriptor) {
  const int on = 1, idle = 10, pause = 5, num = 3;  // seconds; 25 in all
  const unsigned unanswered = 25'000;               // milliseconds without acknowledgement
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &num, sizeof num);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string address_towards(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port);
  const Socket probe(::socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // On a datagram socket, connect() only chooses a route.
  if (probe && ::connect(probe.descriptor(), addresses->ai_addr, addresses->ai_addrlen) == 0 &&
      ::getsockname(probe.descriptor(), reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    std::string address = number_of(reinterpret_cast<const sockaddr*>(&own));
    if (!address.empty()) return address;
  }
  return "127.0.0.1";
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if (is_link_local(one->ifa_addr)) continue;
      const bool is_it =
          name.empty() ? (one->ifa_flags & IFF_UP) != 0U && (one->ifa_flags & IFF_LOOPBACK) == 0U
                       : name == one->ifa_name;
      if (is_it) return number_of(one->ifa_addr);
    }
  }
  return "127.0.0.1";
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "?";
  return name.data();
}

}  // namespace tanren
