// TCP sockets for the ranks of a run: each closes itself, none outlives an exec, and no call blocks
// longer than its time limit. Torch-free, no state. Called by the rendezvous and the control
// channel.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace tanren {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  int descriptor() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// Accepts connections to `host`: on the loopback alone if that is its address and all ranks are on
// this machine, otherwise on all addresses. Port 0: any free port, or CommError. ConfigError if a
// given port cannot be used, for example because it is taken.
Socket listening_socket(const std::string& host, int port, bool from_elsewhere);
int port_of(const Socket& listener);
// Accepts connections to all addresses of this machine; empty, with errno set, if that fails.
Socket listener_on_all_addresses(int port);

// A non-blocking socket, connected to one of the addresses of `host`. Retries until `end`, because
// the listener may start later; then CommError with the last reason. Here and in listening_socket,
// a host without an address is a ConfigError.
Socket connected_socket(const std::string& host, int port,
                        std::chrono::steady_clock::time_point end);

// Makes the connection break, rather than stay silent for hours, when the machine at the other end
// is gone.
void notice_dead_machine(int descriptor);

// The address of this machine on the route to `host`.
std::string address_towards(const std::string& host, int port);
// An address of this machine that others can reach: of the interface called `name` or, if that is
// empty, of the first interface that is up and not the loopback. If there is none, the loopback's.
std::string address_of_interface(const std::string& name);
// The host name; "?" if it has none.
std::string machine_name();

}  // namespace tanren
