// Ranks: what one rank of a run knows of the others, and everything that ranks agree on except the
// gradients: names, facts, weights. Ranks form a mesh of two axes: each stage of the model has its
// replicas, and rank = stage × replicas + replica. Invariant: every rank calls the same functions
// in the same order, and all return, or throw, the same; with one rank they cost nothing. Owned by
// Parts; used on the step's thread.
#pragma once

#include "tanren/base/tensor_map.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/comm/communicator.h"
#include "tanren/parallel/reducer.h"
#include "tanren/plan/plan.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// What must be the same on every rank: the name of each fact, and its value as text.
using Facts = std::vector<std::pair<std::string, std::string>>;

// The ranks in one row of the mesh, and this one's place among them.
class RankAxis {
 public:
  RankAxis();  // this rank alone
  explicit RankAxis(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int64_t rank() const { return communicator_->rank(); }
  int64_t size() const { return communicator_->world_size(); }
  bool alone() const { return size() == 1; }
  bool is_first() const { return rank() == 0; }
  Communicator& communicator() const { return *communicator_; }

 private:
  std::shared_ptr<Communicator> communicator_;
};

// A tensor that several stages of a replica hold.
struct TiedTensor {
  std::string name;
  std::vector<int64_t> stages;  // those that hold it, rising; the first owns it
  at::Tensor tensor;            // undefined on other stages
};

struct RankAxes {
  RankAxis world;     // all ranks
  RankAxis data;      // the replicas of this rank's stage, which share the samples
  RankAxis pipeline;  // the stages of this rank's replica
};

class Ranks {
 public:
  Ranks();  // one rank
  // Every rank of `world` is a replica of the whole model. `open_windows`: shared by ranks that are
  // threads of one process, which also share one cache of cast weights; null: every rank has its
  // own.
  Ranks(const std::shared_ptr<Communicator>& world, ParallelPlan plan,
        std::shared_ptr<std::atomic<int>> open_windows = nullptr);
  // Error if the rank in the world is not stage × replicas + replica.
  Ranks(RankAxes axes, ParallelPlan plan, std::shared_ptr<std::atomic<int>> open_windows = nullptr);

  const RankAxis& world() const { return axes_.world; }
  const RankAxis& data() const { return axes_.data; }
  const RankAxis& pipeline() const { return axes_.pipeline; }
  const ParallelPlan& plan() const { return plan_; }
  ReducerOptions reducer_options() const;
  std::atomic<int>* open_windows() const { return open_windows_.get(); }
  // How batch norm reaches the other replicas in a microstep (AcrossRanksScope); null unless
  // parallel.buffers is "synchronised" and there are other replicas.
  const std::shared_ptr<const GatherRows>& across_ranks() const { return across_ranks_; }

  // Over all ranks.

  // All names that some rank has: rank 0's first, in its order, then the additional names of the
  // others.
  std::vector<std::string> agree_names(const std::vector<std::string>& mine) const;
  // ConfigError naming the first fact that differs, the ranks and both values.
  void check_alike(const Facts& mine) const;

  // Over the replicas of this stage, which hold the same tensors.

  // Every tensor becomes that of replica `replica`, bitwise. Shapes and dtypes must be the same on
  // each.
  void take_from(const std::vector<at::Tensor>& tensors, int64_t replica) const;
  // Every tensor, which must be floating, becomes its weighted mean over the replicas, with
  // weights[r] for replica r. It is computed in double and is the same on each. A replica of weight
  // 0 does not count, whatever its values are.
  void take_mean(const std::vector<at::Tensor>& tensors, const std::vector<double>& weights) const;
  // CommError that names the first tensor that is not bitwise equal to the first replica's, and the
  // ranks in the world. `when`: "at step 100".
  void check_equal(const TensorMap& tensors, const std::string& when) const;

  // Over the stages of this replica, each of which gives the same tensors in the same order.

  // Every tensor becomes that of the stage that owns it, bitwise.
  void take_from_owners(const std::vector<TiedTensor>& tied) const;
  // CommError, as of check_equal, for the first tensor that is not bitwise equal to its owner's.
  void check_tied(const std::vector<TiedTensor>& tied, const std::string& when) const;

 private:
  // The rank in the world of a replica of this stage, or of `stage`.
  int64_t rank_of(int64_t replica) const { return rank_of(pipeline().rank(), replica); }
  int64_t rank_of(int64_t stage, int64_t replica) const { return stage * data().size() + replica; }
  [[noreturn]] void throw_differs(const std::string& when, const std::string& name, int64_t rank,
                                  int64_t first, Communicator& comm) const;

  RankAxes axes_;
  ParallelPlan plan_;
  std::shared_ptr<std::atomic<int>> open_windows_;
  std::shared_ptr<const GatherRows> across_ranks_;
};

}  // namespace tanren
