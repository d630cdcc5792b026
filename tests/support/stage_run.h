// Small runs in stages on ranks that are threads of the test: each rank of a mesh holds its stage
// of the model and drives its own run update by update.
#pragma once

#include "tanren/config/device_name.h"
#include "tanren/data/collated.h"
#include "tanren/forecast/block_profile.h"
#include "tanren/forecast/stages.h"
#include "tanren/parallel/ranks_test_util.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/on_ranks.h"
#include "tests/support/rank_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {

// What a run in stages is made of. One stage: no stages, each replica has the whole model.
struct StagedRun {
  RunConfig config;
  const Dataset& data;
  std::function<Task()> make_task = {};  // empty: the config's model
  int stages = 1;
  int replicas = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int devices = 1;  // accelerators that the ranks share in turn; unused on the CPU

  Task task() const { return make_task ? make_task() : build_task(config, ModelRegistry(), data); }
};

// Cuts the model so that the slowest stage has the least work. Returns what each stage holds.
inline std::vector<StagePlan> cut_run(const StagedRun& run) {
  const Task task = run.task();
  const Plan plan = rank_plan(run.config, task, run.data, /*rank=*/0, /*world_size=*/1);
  const Batch batch = collated(run.data, {0, 1}).batch;
  const auto make_task = [&] { return run.task(); };
  const ModelBlocks model = block_profile(plan, make_task, batch);
  const PipelineCut cut = cut_balanced(model, {.stages = run.stages}).value();
  return stage_plans(model, cut, *task.module);
}

// The run of one rank of the mesh.
struct StageRank {
  const Dataset& data;
  Parts parts;
  RunState state;
  std::unique_ptr<BatchStream> batches;

  // `stage`: null: the whole model.
  StageRank(const StagedRun& run, const RankAxes& axes, std::shared_ptr<const StagePlan> stage,
            const std::shared_ptr<std::atomic<int>>& open_windows)
      : data(run.data) {
    static std::mutex one_at_a_time;  // models draw from the process's generator
    const std::lock_guard lock(one_at_a_time);
    Task task = run.task();
    Plan plan = rank_plan(run.config, task, data, static_cast<int>(axes.data.rank()),
                          static_cast<int>(axes.data.size()));
    if (plan.device.device != "cpu") {
      plan.device.device =
          device_name(read_device_name(plan.device.device)->kind, axes.world.rank() % run.devices);
    }
    parts = build_parts(plan, nullptr);
    parts.ranks = std::make_shared<Ranks>(axes, plan.parallel, open_windows);
    parts.stage = std::move(stage);
    state = build_run_state(std::move(task), parts);
    batches = std::make_unique<BatchStream>(make_loader(state, parts, data), *parts.ranks);
  }

  StepReport step() { return *update(state, parts, batches->next()); }
  Objective& objective() { return state.phases.front().objectives.front(); }
};

// Calls its argument on every rank of a mesh, with the rank's axes.
using OnRanks = std::function<void(const std::function<void(const RankAxes&)>&)>;

// Calls `work` on every rank of the run's mesh, each with its own run.
inline void on_mesh(const OnRanks& ranks, const StagedRun& run,
                    const std::function<void(StageRank&)>& work) {
  const auto plans = run.stages > 1 ? cut_run(run) : std::vector<StagePlan>();
  const auto open_windows = std::make_shared<std::atomic<int>>(0);
  ranks([&](const RankAxes& axes) {
    std::shared_ptr<StagePlan> stage;
    if (run.stages > 1) {
      stage = std::make_shared<StagePlan>(plans[static_cast<size_t>(axes.pipeline.rank())]);
      stage->replica = axes.data.rank();
      stage->replicas = axes.data.size();
      stage->schedule = run.schedule;
    }
    StageRank rank(run, axes, std::move(stage), open_windows);
    Communicator& world = axes.world.communicator();
    world.sum(at::zeros({1}, at::TensorOptions(world.device())));  // an update seeds that generator
    work(rank);
  });
}

inline void on_mesh(const Mesh& mesh, const StagedRun& run,
                    const std::function<void(StageRank&)>& work) {
  on_mesh([&](const auto& each) { mesh.run(each); }, run, work);
}

inline void on_mesh(const StagedRun& run, const std::function<void(StageRank&)>& work) {
  on_mesh(Mesh(run.stages, run.replicas), run, work);
}

// What a run leaves: the weights and buffers of all stages by name, and what rank 0 reports.
struct Trained {
  TensorMap tensors, averages;
  std::vector<double> losses, norms, scales;
  std::vector<Action> actions;
  std::vector<int64_t> microsteps;
};

inline Trained trained(const OnRanks& ranks, const StagedRun& run, int updates) {
  Trained result;
  std::mutex mutex;
  on_mesh(ranks, run, [&](StageRank& rank) {
    std::vector<StepReport> reports;
    for (int i = 0; i < updates; ++i) reports.push_back(rank.step());
    const std::lock_guard lock(mutex);
    const auto keep = [&](const TensorMap& tensors, TensorMap& all) {
      for (const auto& [name, tensor] : tensors) {
        const at::Tensor own = tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
        if (all.contains(name)) {  // of another replica or stage: bitwise the same
          EXPECT_TRUE(at::equal(all.at(name), own)) << name;
        } else {
          all.set(name, own);
        }
      }
    };
    keep(rank.state.model_tensors(), result.tensors);
    keep(rank.state.average_state().tensors, result.averages);
    if (!rank.parts.ranks->world().is_first()) return;
    for (const StepReport& report : reports) {
      const ObjectiveReport& objective = report.objectives.at(0);
      result.losses.push_back(objective.loss);
      result.norms.push_back(objective.grad_norm);
      result.scales.push_back(objective.loss_scale);
      result.actions.push_back(objective.verdict.action);
      result.microsteps.push_back(report.microsteps);
    }
  });
  return result;
}

inline Trained trained(const StagedRun& run, int updates) {
  const Mesh mesh(run.stages, run.replicas);
  return trained([&](const auto& each) { mesh.run(each); }, run, updates);
}

inline constexpr double kBitwise = 0;  // a tolerance

inline at::Tensor in_one_row(const TensorMap& tensors, const TensorMap& order) {
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] : order) {
    all.push_back(tensors.at(name).to(at::kDouble).flatten());
  }
  return at::cat(all);
}

inline void expect_same_tensors(const TensorMap& staged, const TensorMap& whole, double tolerance) {
  ASSERT_EQ(staged.size(), whole.size());
  if (tolerance > 0) {
    if (whole.size() == 0) return;
    EXPECT_LT(relative(in_one_row(staged, whole), in_one_row(whole, whole)), tolerance);
    return;
  }
  for (const auto& [name, tensor] : whole) {
    EXPECT_TRUE(at::equal(staged.at(name), tensor)) << name;
  }
}

inline void expect_same(double staged, double whole, double tolerance) {
  const bool is_same = staged == whole || (std::isnan(staged) && std::isnan(whole)) ||
                       std::abs(staged - whole) <= tolerance * std::abs(whole);
  EXPECT_TRUE(is_same) << staged << " in stages, " << whole << " without";
}

// `tolerance`: relative; 0: bitwise.
inline void expect_same(const Trained& staged, const Trained& whole, double tolerance) {
  ASSERT_EQ(staged.losses.size(), whole.losses.size());
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    SCOPED_TRACE("update " + std::to_string(i + 1));
    expect_same(staged.losses[i], whole.losses[i], tolerance);
    expect_same(staged.norms[i], whole.norms[i], tolerance);
  }
  EXPECT_EQ(staged.scales, whole.scales);
  EXPECT_EQ(staged.actions, whole.actions);
  EXPECT_EQ(staged.microsteps, whole.microsteps);
  expect_same_tensors(staged.tensors, whole.tensors, tolerance);
  expect_same_tensors(staged.averages, whole.averages, tolerance);
}

}  // namespace tanren::testing
