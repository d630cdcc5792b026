#include "tanren/comm/gloo.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/awaited.h"
#include "tanren/comm/c10d_communicator.h"
#include "tanren/comm/connected.h"
#include "tanren/comm/rendezvous.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// c10d's Gloo has no abort: a wait lasts until its connection breaks or its time is over. This
// abort breaks all connections, as a time-out does, so that every wait ends, on this rank and on
// the others.
class Gloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  ~Gloo() override {
    // The base class would wait for operations under way.
    if (is_busy()) break_connections();
  }
  void abort() override { break_connections(); }
  // Whether anything is under way.
  bool is_busy() {
    const std::lock_guard lock(workMutex_);
    return !workQueue_.empty() || std::any_of(workInProgress_.begin(), workInProgress_.end(),
                                              [](const auto& work) { return work.defined(); });
  }

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

void prepare_process() {
  // Gloo writes to connections that a lost rank has closed. This must cause an error, and not end
  // the process by a signal.
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
  }
  // c10d's record of operations is shared by the whole process, and breaks if ranks are its
  // threads.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
}

// What a rank needs to connect to all other ranks, or to those of a part.
struct GlooPlace {
  c10::intrusive_ptr<c10d::Store> store;
  std::string own_address;
  std::chrono::milliseconds timeout;  // the longest that one operation may take

  // All ranks have met: a rank that does not connect in this time is gone.
  std::chrono::milliseconds longest() const {
    return std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(30));
  }
};

c10::intrusive_ptr<Gloo> connect(const GlooPlace& place, const std::string& prefix, int rank,
                                 int size) {
  const auto timeout = place.longest();
  place.store->setTimeout(timeout);
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(
      interface != nullptr && *interface != 0
          ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
          : c10d::ProcessGroupGloo::createDeviceForHostname(place.own_address));
  auto group = c10::make_intrusive<Gloo>(
      c10::make_intrusive<c10d::PrefixStore>(prefix, place.store), rank, size, options);
  // A connected rank waits until all are connected: a rank that left at once would look like a
  // broken connection.
  std::vector<at::Tensor> nothing = {at::zeros({1})};
  group->allreduce(nothing)->wait();
  group->setTimeout(place.timeout);
  return group;
}

// c10d's own split() makes a group without our abort.
C10dBackend connected_part(const GlooPlace& place, const C10dPart& part) {
  auto group = connected(
      *part.control,
      fmt::format("[comm] rank {} does not connect to the other ranks of its part, {}",
                  part.ranks[static_cast<size_t>(part.rank)], text_of_ranks(part.ranks)),
      [place, part] { return connect(place, "gloo-" + part.name, part.rank, part.size); });
  auto is_busy = [gloo = group.get()] { return gloo->is_busy(); };
  return {std::move(group), std::move(is_busy)};
}

}  // namespace

std::unique_ptr<Communicator> gloo_communicator(const World& world,
                                                std::chrono::milliseconds timeout) {
  static std::once_flag once;
  std::call_once(once, prepare_process);
  Rendezvous rendezvous = join_rendezvous(world, timeout);
  const GlooPlace place{rendezvous.store, rendezvous.own_address, timeout};
  auto group = connected(
      *rendezvous.control,
      fmt::format("[comm] rank {} of {} does not connect to the others, which met at {}",
                  world.rank, world.size, place_of(world)),
      [place, rank = world.rank, size = world.size] { return connect(place, "gloo", rank, size); });
  C10dOptions as_gloo{.name = "gloo", .timeout = timeout};
  as_gloo.is_busy = [gloo = group.get()] { return gloo->is_busy(); };
  as_gloo.split = [place](const C10dPart& part) { return connected_part(place, part); };
  return c10d_communicator(std::move(group), std::move(as_gloo), std::move(rendezvous.control));
}

}  // namespace tanren
