// The ranks of a run as a mesh of stages and replicas (parallel/ranks.h), from the connection of
// all. Internal to run/.
#pragma once

#include "tanren/comm/with_parts.h"
#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"
#include "tanren/train/stage_plan.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace tanren {

// The part of the model that the rank of this plan holds, by the plans of replica 0 of each stage;
// null: all of it, because there are no stages.
std::shared_ptr<const StagePlan> stage_of(const std::vector<StagePlan>& stages,
                                          const ParallelPlan& plan);

// Calls `work` with the Ranks of this rank, and keeps no reference to them. Every rank of `world`
// calls it. With stages, the ranks of each row of the mesh get their own communicator, and an
// exception from `work` ends the other ranks. `open_windows`: as Ranks has it.
template <class Work>
auto with_mesh(const std::shared_ptr<Communicator>& world, const ParallelPlan& plan,
               const Work& work, const std::shared_ptr<std::atomic<int>>& open_windows = nullptr) {
  if (plan.pipeline == 1) {
    return work(std::make_shared<const Ranks>(world, plan, open_windows));
  }
  const auto with_axes = [&](RankAxes axes) {
    return work(std::make_shared<const Ranks>(std::move(axes), plan, open_windows));
  };
  const auto replica = static_cast<int>(plan.replica());
  return with_parts(*world, replica, [&](const std::shared_ptr<Communicator>& pipeline) {
    if (plan.data_size() == 1) {
      return with_axes(
          {.world = RankAxis(world), .data = RankAxis(), .pipeline = RankAxis(pipeline)});
    }
    const auto stage = static_cast<int>(plan.stage());
    return with_parts(*world, stage, [&](const std::shared_ptr<Communicator>& data) {
      return with_axes(
          {.world = RankAxis(world), .data = RankAxis(data), .pipeline = RankAxis(pipeline)});
    });
  });
}

}  // namespace tanren
