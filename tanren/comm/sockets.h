// TCP sockets as the ranks of a run need them: each closes itself, none outlives an exec, and
// nothing blocks longer than it is told. Torch-free, no state. Called by the rendezvous and the
// control channel.
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

// Accepts connections to `host`: on the loopback alone where that is its address and all ranks are
// on this machine, on all addresses otherwise. Port 0: any free one, or CommError. ConfigError where the
// one that is given cannot be had, as if it is taken.
Socket listening_socket(const std::string& host, int port, bool from_elsewhere);
int port_of(const Socket& listener);

// Non-blocking, connected to one of the addresses of `host`; tried again until `end`, for its
// listener may come later. CommError with the last reason. Here as there, a host without an address is
// a ConfigError.
Socket connected_socket(const std::string& host, int port,
                        std::chrono::steady_clock::time_point end);

// The connection breaks, rather than staying silent for hours, when the machine at its other end is
// gone.
void notice_dead_machine(int descriptor);

// The address of this machine on the way to `host`.
std::string address_towards(const std::string& host, int port);
// An address of this machine that others reach: of the interface of that name, or where it is empty
// of the first that is up and no loopback. The loopback's where there is none.
std::string address_of_interface(const std::string& name);
// As the system calls it; "?" where it has no name.
std::string machine_name();

}  // namespace tanren
