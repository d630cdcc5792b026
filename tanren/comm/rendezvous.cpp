#include "tanren/comm/rendezvous.h"

#include "tanren/base/error.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/comm/rendezvous_file.h"
#include "tanren/comm/run_detached.h"
#include "tanren/comm/sockets.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;

bool is_elsewhere(const World& world) { return world.local_size < world.size; }

constexpr std::chrono::seconds kShortest{2};  // least wait, if rank 0 came late

// Runs `work` until `end`; no value if the time is over. c10d itself has no time limit in two
// cases: it waits for an answer that another program at the port or a stopped rank 0 never gives,
// and for the rest of a record that a killed process began to write into a file.
template <class Work>
std::optional<std::invoke_result_t<Work&>> within(Clock::time_point end, Work work) {
  auto answer = run_detached(std::move(work));
  if (answer.wait_until(end) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

Store store_of_rank_0(const World& world, const c10d::TCPStoreOptions& options,
                      Clock::time_point end) {
  std::string what = "does not answer as";
  try {
    const auto store =
        within(std::max(end, Clock::now() + kShortest), [host = world.host, options]() -> Store {
          return c10::make_intrusive<c10d::TCPStore>(host, options);
        });
    if (store) return *store;
  } catch (const std::exception&) {  // c10d's text is about its own protocol
    what = "answers otherwise than";
  }
  throw CommError(
      fmt::format("[comm] something receives at {} and {} rank 0 of a tanren run would: rank {} of "
                  "{} gives up after {} s; is rank 0 there, and are MASTER_ADDR and MASTER_PORT, "
                  "or the rendezvous, its own? Else take another port",
                  place_of(world), what, world.rank, world.size, in_seconds(options.timeout)));
}

Store store_at_address(const World& world, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  c10d::TCPStoreOptions options;
  options.isServer = world.rank == 0 && !world.has_agent_store;
  options.port = static_cast<uint16_t>(world.port);
  options.numWorkers = static_cast<size_t>(world.size);
  options.waitWorkers = false;  // its time-out does not name the missing ranks
  options.timeout = timeout;
  // c10d itself is slow and noisy when it waits for a server or finds its port taken.
  if (options.isServer) {
    Socket listener = listening_socket(world.host, world.port, is_elsewhere(world));
    options.port = static_cast<uint16_t>(port_of(listener));
    options.masterListenFd = listener.release();
  } else {
    try {
      connected_socket(world.host, world.port, end);
    } catch (const CommError& error) {
      throw CommError(fmt::format(
          "[comm] rank {} of {} does not reach rank 0: {}; is it running, and are MASTER_ADDR and "
          "MASTER_PORT, or the rendezvous, its own?",
          world.rank, world.size, std::string_view(error.what()).substr(sizeof "[comm]")));
    }
    return store_of_rank_0(world, options, end);
  }
  return c10::make_intrusive<c10d::TCPStore>(world.host, options);
}

// The error text for a place that ranks reach but that answers nothing.
std::string unresponsive_text(const World& world, std::chrono::milliseconds timeout) {
  const std::string_view why =
      !world.file.empty()
          ? "its disk does not answer, another process keeps it locked, or one that "
            "was killed left it half-written; take a new file"
      : world.has_agent_store ? "the launcher's process is stopped, or the connection to it is gone"
                              : "rank 0's process is stopped, or the connection to it is gone";
  return fmt::format("[comm] rank {} of {} came to {} and has no answer there after {} s: {}",
                     world.rank, world.size, place_of(world), in_seconds(timeout), why);
}

Store store_in_file(const World& world, const std::string& prefix,
                    std::chrono::milliseconds timeout) {
  const auto folder = std::filesystem::path(world.file).parent_path();
  if (!std::filesystem::is_directory(folder)) {  // c10d would wait for it
    throw ConfigError(
        fmt::format("[comm] the ranks cannot meet at {}: there is no folder {}; make it",
                    world.file, folder.string()));
  }
  const auto store = within(Clock::now() + std::max<Clock::duration>(timeout, kShortest),
                            [path = world.file, size = world.size, prefix, timeout] {
                              return open_rendezvous_file(path, size, prefix, timeout);
                            });
  if (!store) throw CommError(unresponsive_text(world, timeout));
  return *store;
}

// One rank at the rendezvous. Detached threads that use it may outlive the call, so they share it.
class Arrival {
 public:
  Arrival(Store store, World world, std::chrono::milliseconds timeout)
      : store_(std::move(store)),
        world_(std::move(world)),
        timeout_(timeout),
        end_(Clock::now() + timeout) {}

  void come() {
    store_->add("arrived", 1);
    const std::string own = fmt::format("{}, pid {}", machine_name(), ::getpid());
    if (store_->add(key_of(world_.rank), 1) > 1) {
      const std::string who = fmt::format("who/{}", world_.rank);
      fail<ConfigError>(fmt::format(
          "[comm] two processes say that they are rank {} of {} at {}: ({}) and ({}); each needs a "
          "RANK of its own, each run a {}",
          world_.rank, world_.size, place_of(world_),
          store_->check({who}) ? store_->get_to_str(who) : "unknown", own,
          world_.file.empty() ? "port" : "new file"));
    }
    store_->set(fmt::format("who/{}", world_.rank), own);
    if (world_.rank == 0) store_->set("size", to_text(world_.size));
    for (int rank = 0; rank < world_.size; ++rank) {
      if (!await(key_of(rank))) fail<CommError>(missing_from(rank));
      if (rank == 0 && await("size")) check_size(own);
    }
    // This rank has seen every rank and was started with rank 0's number of ranks. When all ranks
    // report that, rank 0 decides that the run continues. An error after that decision is known
    // only to the rank that found it.
    store_->set(fmt::format("counted/{}", world_.rank), "yes");
    if (world_.rank != 0) return;
    for (int rank = 0; rank < world_.size; ++rank) {
      if (!await(fmt::format("counted/{}", rank))) fail<CommError>(silent_text(rank));
    }
    if (store_->add("verdict", 1) == 1) return;
    while (await("failed")) {  // throws the stored failure
    }
    throw CommError(silent_text(0));
  }

  // The time when all its work must have ended. Work still under way then counts as unresponsive.
  Clock::time_point over() const { return end_ + kShortest + kLinger; }
  std::string unresponsive() const { return unresponsive_text(world_, timeout_); }

  // The text that rank 0 stores under `key`, once it exists. CommError.
  std::string get(const std::string& key) {
    if (!await(key)) fail<CommError>(silent_text(0));
    return store_->get_to_str(key);
  }
  void put(const std::string& key, const std::string& text) { store_->set(key, text); }

 private:
  static constexpr std::chrono::seconds kLinger{1};

  static std::string key_of(int rank) { return fmt::format("rank/{}", rank); }
  double seconds() const { return in_seconds(timeout_); }

  // False when the timeout has ended. Throws the failure that another rank has stored.
  bool await(const std::string& key) {
    const std::chrono::milliseconds pause(world_.file.empty() ? 2 : 20);
    for (;;) {
      if (store_->check({"failed"})) {
        const std::string text = store_->get_to_str("failed");
        const bool is_input = store_->check({"input"});
        store_->add("heard", 1);
        linger();
        if (is_input) throw ConfigError(text);
        throw CommError(text);
      }
      if (store_->check({key})) return true;
      if (Clock::now() >= end_) return false;
      std::this_thread::sleep_for(pause);
    }
  }

  template <class Failure>
  [[noreturn]] void fail(const std::string& text) {
    if (store_->add("verdict", 1) == 1) {
      if (std::is_same_v<Failure, ConfigError>) store_->set("input", "wrong");
      store_->set("failed", text);  // last, because its readers then check "input"
    }
    store_->add("heard", 1);
    linger();
    throw Failure(text);
  }

  // The store ends with rank 0, so rank 0 waits until the ranks that are here or about to come have
  // read the failure.
  void linger() {
    if (world_.rank != 0) return;
    const auto end = Clock::now() + kLinger;
    // Two processes with the same rank both count.
    const auto all = [&] { return std::max<int64_t>(store_->add("arrived", 0), world_.size); };
    while (store_->add("heard", 0) < all() && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void check_size(const std::string& own) {
    const std::string size = store_->get_to_str("size");
    if (size == to_text(world_.size)) return;
    fail<ConfigError>(
        fmt::format("[comm] rank {} ({}) was started as one of {} ranks, rank 0 at {} as one of "
                    "{}; give all the same WORLD_SIZE",
                    world_.rank, own, world_.size, place_of(world_), size));
  }

  std::string silent_text(int rank) const {
    return fmt::format("[comm] rank {} of {} came to {} and said nothing more in {} s", rank,
                       world_.size, place_of(world_), seconds());
  }

  std::string missing_from(int first) const {
    std::string missing;
    for (int rank = first; rank < world_.size; ++rank) {
      if (store_->check({key_of(rank)})) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    return fmt::format("[comm] after {} s these ranks of {} have not come to {}: {}", seconds(),
                       world_.size, place_of(world_), missing);
  }

  Store store_;
  const World world_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point end_;
};

// The text that `work` on the arrival returns. CommError if `work` does not end.
template <class Work>
std::string answered(const std::shared_ptr<Arrival>& arrival, Work work) {
  const auto text = within(arrival->over(), std::move(work));
  if (!text) throw CommError(arrival->unresponsive());
  return *text;
}

std::string random_word() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

std::unique_ptr<ControlChannel> open_control(const std::shared_ptr<Arrival>& arrival,
                                             const World& world, const std::string& own_address,
                                             std::chrono::milliseconds timeout) {
  ControlChannel::Options options{world.rank, world.size, random_word(), timeout};
  if (world.rank == 0) {
    // The host under which the other ranks have already reached rank 0. If they met in a file, it
    // is the address that this machine considers its own.
    const std::string host = world.file.empty() ? world.host : own_address;
    Socket listener = listening_socket(host, 0, is_elsewhere(world));
    const auto words = fmt::format("{} {} {}", port_of(listener), options.run_id, host);
    answered(arrival, [arrival, words] {
      arrival->put("control", words);
      return std::string();
    });
    return ControlChannel::open(std::move(listener), options);
  }
  std::istringstream words(answered(arrival, [arrival] { return arrival->get("control"); }));
  int port = 0;
  std::string host;
  words >> port >> options.run_id >> host;
  return ControlChannel::open(connected_socket(host, port, Clock::now() + timeout), options);
}

std::string address_of(const World& world) {
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");  // as PyTorch reads it
  const std::string interface = given == nullptr ? "" : given;
  if (!interface.empty()) return address_of_interface(interface);
  if (!is_elsewhere(world)) {
    return world.file.empty() ? address_towards(world.host, world.port) : "127.0.0.1";
  }
  if (!world.file.empty()) return address_of_interface("");
  const std::string address = address_towards(world.host, world.port);
  // Rank 0's machine may resolve its own name to the loopback.
  return address.rfind("127.", 0) == 0 || address == "::1" ? address_of_interface("") : address;
}

}  // namespace

Rendezvous join_rendezvous(const World& world, std::chrono::milliseconds timeout) {
  try {
    const std::string prefix = "tanren/" + world.attempt;
    const Store store = world.file.empty() ? Store(c10::make_intrusive<c10d::PrefixStore>(
                                                 prefix, store_at_address(world, timeout)))
                                           : store_in_file(world, prefix, timeout);
    const auto arrival = std::make_shared<Arrival>(store, world, timeout);
    answered(arrival, [arrival] {
      arrival->come();
      return std::string();
    });
    Rendezvous rendezvous{store, nullptr, address_of(world)};
    rendezvous.control = open_control(arrival, world, rendezvous.own_address, timeout);
    return rendezvous;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(fmt::format("[comm] rank {} of {} lost the others while they met at {}: {}",
                                world.rank, world.size, place_of(world), first_line(error.what())));
  }
}

}  // namespace tanren
