// A mesh of ranks as threads, for tests: each runs the same function with its own axes, over a
// ThreadGroup for the world and one for each row. All threads are joined; an exception on one rank
// ends the waits of the others and is rethrown by the call. Included by tests only.
#pragma once

#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/parallel/ranks.h"

#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace tanren::testing {

class Mesh {
 public:
  Mesh(int stages, int replicas) : stages_(stages), replicas_(replicas), world_(stages * replicas) {
    for (int stage = 0; stage < stages; ++stage) data_.emplace_back(replicas);
    for (int replica = 0; replica < replicas; ++replica) pipeline_.emplace_back(stages);
  }

  // Once for each rank.
  RankAxes axes(int rank) const { return with_world(rank, world_.communicator(rank)); }

  void run(const std::function<void(const RankAxes&)>& work) const {
    on_ranks(world_, stages_ * replicas_, [&](Communicator& comm) {
      try {
        work(with_world(comm.rank(), {&comm, [](Communicator*) {}}));
      } catch (const std::exception& error) {
        for (const ThreadGroup& group : data_) group.cancel(error.what());
        for (const ThreadGroup& group : pipeline_) group.cancel(error.what());
        throw;
      }
    });
  }

  // Messages and other operations among the stages of a replica so far.
  int64_t num_operations_of(int replica) const {
    return pipeline_[static_cast<size_t>(replica)].num_operations();
  }

 private:
  RankAxes with_world(int rank, std::shared_ptr<Communicator> world) const {
    const int stage = rank / replicas_, replica = rank % replicas_;
    return {.world = RankAxis(std::move(world)),
            .data = RankAxis(data_[static_cast<size_t>(stage)].communicator(replica)),
            .pipeline = RankAxis(pipeline_[static_cast<size_t>(replica)].communicator(stage))};
  }

  int stages_, replicas_;
  ThreadGroup world_;
  std::vector<ThreadGroup> data_;      // by stage
  std::vector<ThreadGroup> pipeline_;  // by replica
};

}  // namespace tanren::testing
