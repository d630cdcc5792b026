#include "tanren/comm/gloo.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/c10d_communicator.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <c10/util/Flags.h>
#include <c10/util/Logging.h>

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;

// c10d tells each failure to stderr with its stack; here an error says it, in a line.
class QuietScope {
 public:
  QuietScope() : before_(std::exchange(FLAGS_caffe2_log_level, kFatal)) {}
  ~QuietScope() { FLAGS_caffe2_log_level = before_; }
  QuietScope(const QuietScope&) = delete;
  QuietScope& operator=(const QuietScope&) = delete;

 private:
  static constexpr int kFatal = 3;
  int before_;
};

// c10d's Gloo has no abort: a wait lasts until its connection breaks or its time is over. Here it breaks
// all connections, as a time-out does, so that every wait ends, here and on the other ranks.
class Gloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  ~Gloo() override {
    // The class underneath would wait for what is under way.
    bool is_busy = false;
    {
      const std::lock_guard lock(workMutex_);
      is_busy = !workQueue_.empty() || std::any_of(workInProgress_.begin(), workInProgress_.end(),
                                                   [](const auto& work) { return work.defined(); });
    }
    if (is_busy) break_connections();
  }
  void abort() override { break_connections(); }

 private:
  void break_connections() {
    for (const auto& context : contexts_) {
      for (int rank = 0; rank < getSize(); ++rank) {
        auto* pair = dynamic_cast<gloo::transport::tcp::Pair*>(context->getPair(rank).get());
        if (pair != nullptr) pair->signalExceptionExternal("aborted");
      }
    }
  }
};

Store meet_at(const World& world, std::chrono::milliseconds patience) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(world.port);
  options.isServer = world.rank == 0;
  options.numWorkers = static_cast<size_t>(world.size);
  options.waitWorkers = false;  // its time-out does not say who is missing
  options.timeout = patience;
  try {
    return c10::make_intrusive<c10d::TCPStore>(world.host, options);
  } catch (const std::exception& error) {
    throw CommError(fmt::format(
        "[comm] rank {} of {} {} {}:{}: {}; {}", world.rank, world.size,
        world.rank == 0 ? "cannot receive the others at" : "does not reach rank 0 at", world.host,
        world.port, first_line(error.what()),
        world.rank == 0 ? "is the port taken? set MASTER_PORT to a free one"
                        : "is it running, and are MASTER_ADDR and MASTER_PORT its own?"));
  }
}

std::string key_of(int rank) { return "rank/" + std::to_string(rank); }

void enter(const Store& store, const World& world, std::chrono::milliseconds patience) {
  if (store->add(key_of(world.rank), 1) > 1) {
    throw CommError(fmt::format(
        "[comm] two processes say that they are rank {} of {} at {}:{}; each needs a RANK of its "
        "own, each run a MASTER_PORT",
        world.rank, world.size, world.host, world.port));
  }
  const auto end = Clock::now() + patience;
  for (int rank = 0; rank < world.size; ++rank) {
    while (!store->check({key_of(rank)})) {
      if (Clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      std::string missing;
      for (int other = rank; other < world.size; ++other) {
        if (store->check({key_of(other)})) continue;
        missing += (missing.empty() ? "" : ", ") + std::to_string(other);
      }
      throw CommError(fmt::format("[comm] after {} s these ranks of {} have not come to {}:{}: {}",
                                  std::chrono::duration<double>(patience).count(), world.size,
                                  world.host, world.port, missing));
    }
  }
}

// The address of this machine on the way to rank 0's.
std::string own_address(const World& world) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  std::string address = "127.0.0.1";
  if (::getaddrinfo(world.host.c_str(), std::to_string(world.port).c_str(), &hints, &found) != 0) {
    return address;
  }
  const int probe = ::socket(found->ai_family, SOCK_DGRAM, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // Of a datagram socket this only chooses a route.
  if (probe >= 0 && ::connect(probe, found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    char name[NI_MAXHOST];
    if (::getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, name, sizeof name, nullptr,
                      0, NI_NUMERICHOST) == 0) {
      address = name;
    }
  }
  if (probe >= 0) ::close(probe);
  ::freeaddrinfo(found);
  return address;
}

void prepare_process() {
  // Gloo writes to connections that a lost rank has closed: an error, not this process's end.
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
  }
  // c10d's record of operations is one for the process, and breaks where ranks are its threads.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
}

}  // namespace

std::unique_ptr<Communicator> gloo_communicator(const World& world,
                                                std::chrono::milliseconds patience) {
  static std::once_flag once;
  std::call_once(once, prepare_process);
  const QuietScope quiet;
  const Store store = meet_at(world, patience);
  auto options = c10d::ProcessGroupGloo::Options::create(patience);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");  // as PyTorch reads it
  try {
    enter(store, world, patience);
    options->devices.push_back(
        interface != nullptr && *interface != 0
            ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
            : c10d::ProcessGroupGloo::createDeviceForHostname(own_address(world)));
    auto group = c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                           world.rank, world.size, options);
    return c10d_communicator(std::move(group), "gloo", /*in_place=*/false);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(fmt::format("[comm] rank {} of {} lost the others while they met at {}:{}: {}",
                                world.rank, world.size, world.host, world.port,
                                first_line(error.what())));
  }
}

}  // namespace tanren
