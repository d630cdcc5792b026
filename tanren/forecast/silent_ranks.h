// Replacements for the other ranks in a dry run, which has one thread. Every send completes at
// once. A received tensor has the requested shape and no values, except the values that control a
// step. Internal to forecast/.
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

// The axes of the plan's rank in a run in stages. The world's sum in each update (StatusRow) is 1
// in all elements, so that every gradient counts as reached and the update is applied. Each message
// from a later stage is marked as having a gradient.
RankAxes silent_axes(const ParallelPlan& plan);

}  // namespace tanren
