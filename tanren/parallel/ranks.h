// Ranks: what one rank of a run knows of the others, and everything that ranks agree on
// except the gradients: names, facts, weights. Invariant: every rank calls the same functions in
// the same order, and all return, or throw, the same; with one rank they cost nothing. Owned by
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

class Ranks {
 public:
  Ranks();  // one rank
  // `open_windows`: shared by ranks that are threads of one process, which also share one cache of
  // cast weights; null: every rank has its own.
  Ranks(std::shared_ptr<Communicator> communicator, ParallelPlan plan,
               std::shared_ptr<std::atomic<int>> open_windows = nullptr);

  int64_t rank() const { return communicator_->rank(); }
  int64_t world_size() const { return communicator_->world_size(); }
  bool alone() const { return communicator_->world_size() == 1; }
  bool is_first() const { return communicator_->rank() == 0; }
  Communicator& communicator() const { return *communicator_; }
  const ParallelPlan& plan() const { return plan_; }
  ReducerOptions reducer_options() const;
  std::atomic<int>* open_windows() const { return open_windows_.get(); }
  // How batch norm reaches the other ranks in a microstep (AcrossRanksScope); null unless
  // parallel.buffers is "synchronised" and there are other ranks.
  const std::shared_ptr<const GatherRows>& across_ranks() const { return across_ranks_; }

  // All names that some rank has: rank 0's first, in its order, then the additional names of the
  // others.
  std::vector<std::string> agree_names(const std::vector<std::string>& mine) const;
  // ConfigError naming the first fact that differs, the ranks and both values.
  void check_alike(const Facts& mine) const;
  // Every tensor becomes that of `rank`, bitwise. Shapes and dtypes must be the same everywhere.
  void take_from(const std::vector<at::Tensor>& tensors, int64_t rank) const;
  // Every tensor, floating, becomes the weighted mean over ranks, with weights[r] for rank r: the
  // same on every rank, computed in double. A rank of weight 0 does not count, whatever its values
  // are.
  void take_mean(const std::vector<at::Tensor>& tensors, const std::vector<double>& weights) const;
  // CommError naming the first tensor that is not bitwise rank 0's, and the rank; `when`: "at step
  // 100".
  void check_equal(const TensorMap& tensors, const std::string& when) const;

 private:
  std::shared_ptr<Communicator> communicator_;
  ParallelPlan plan_;
  std::shared_ptr<std::atomic<int>> open_windows_;
  std::shared_ptr<const GatherRows> across_ranks_;
};

}  // namespace tanren
