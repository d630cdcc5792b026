// Ranks as threads, for tests: each runs the same function with its own communicator, over a
// ThreadGroup or over Gloo's real connections on the loopback. All threads are joined; an exception
// on one rank ends the waits of the others and is rethrown by the call. Included by tests only.
#pragma once

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/gloo.h"
#include "tanren/comm/sockets.h"
#include "tanren/comm/thread_group.h"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tanren::testing {

using RankWork = std::function<void(Communicator&)>;

// The first exception of several threads. A CommError may be an echo of another exception, which
// therefore takes precedence.
class FirstFailure {
 public:
  void add(std::exception_ptr failure, bool may_be_echo) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr || (is_echo_ && !may_be_echo)) {
      failure_ = std::move(failure);
      is_echo_ = may_be_echo;
    }
  }
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool is_echo_ = false;
};

// Runs communicator_of(rank) and then work on one thread for each rank.
inline void run_ranks(int world_size,
                      const std::function<std::unique_ptr<Communicator>(int)>& communicator_of,
                      const RankWork& work) {
  FirstFailure failure;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> comm;
      const auto failed = [&](const char* what, bool may_be_echo) {
        failure.add(std::current_exception(), may_be_echo);
        if (comm != nullptr) comm->cancel(what);
      };
      try {
        comm = communicator_of(rank);
        work(*comm);
      } catch (const CommError& error) {
        failed(error.what(), true);
      } catch (const std::exception& error) {
        failed(error.what(), false);
      } catch (...) {
        failed("an exception of no known type", false);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  failure.rethrow();
}

inline void on_ranks(const ThreadGroup& group, int world_size, const RankWork& work) {
  run_ranks(
      world_size, [&](int rank) { return group.communicator(rank); }, work);
}

inline void on_ranks(int world_size, const RankWork& work) {
  on_ranks(ThreadGroup(world_size), world_size, work);
}

inline World world_at(int rank, int size, const std::string& rendezvous) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  set_rendezvous(world, rendezvous);
  return world;
}

// A "tcp://" URL with a loopback port that was free a moment ago.
inline std::string free_rendezvous() {
  const int port = port_of(listening_socket("127.0.0.1", 0, false));
  return "tcp://127.0.0.1:" + std::to_string(port);
}

// Over Gloo, the engine of ranks that are processes; here they are threads, each with its own
// connections.
inline void on_gloo_ranks(int world_size, const RankWork& work) {
  const TemporaryFolder folder;
  const std::string rendezvous = "file://" + (folder.path() / "rendezvous").string();
  run_ranks(
      world_size,
      [&](int rank) {
        return gloo_communicator(world_at(rank, world_size, rendezvous), std::chrono::seconds(60));
      },
      work);
}

}  // namespace tanren::testing
