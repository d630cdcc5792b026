// Stand-ins for the other ranks of a dry run, which has one thread: whatever is sent has arrived at
// once, and what is received has the shape that was asked for and no values, except those that
// decide what a step does. Internal to forecast/.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"

#include <memory>
#include <string>
#include <string_view>

namespace tanren {

class SilentRanks : public Communicator {
 public:
  SilentRanks(int64_t rank, int64_t size)
      : rank_(static_cast<int>(rank)), size_(static_cast<int>(size)) {}
  // All ranks of the plan.
  explicit SilentRanks(const ParallelPlan& plan) : SilentRanks(plan.rank, plan.world_size) {}
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }
  std::string_view name() const override { return "silent"; }
  Work start_sum(const at::Tensor&) override { return done(); }
  Work start_sum_scatter(const at::Tensor&, const at::Tensor&) override { return done(); }
  Work start_gather(const at::Tensor&, const at::Tensor&) override { return done(); }
  Work start_broadcast(const at::Tensor&, int) override { return done(); }
  void cancel(const std::string&) override {}

 protected:
  static Work done();

 private:
  Work begin_send(const at::Tensor&, int, const std::string&) override { return done(); }
  Work begin_receive(const at::Tensor&, int, const std::string&) override { return done(); }

  int rank_, size_;
};

// The axes of the plan's rank of a run in stages. In the row of numbers that the world sums in each
// update (StatusRow) all are 1, so that every gradient counts as reached and the update is applied;
// each gradient that a later stage sends says that it is one.
RankAxes silent_axes(const ParallelPlan& plan);

}  // namespace tanren
