// The update of one rank of a run in stages, without its loop: planned and cut as a run is. Ranks
// are processes, or threads of a benchmark. Shared by the benchmarks of stages.
#pragma once

#include "tanren/forecast/block_profile.h"
#include "tanren/forecast/stages.h"
#include "tanren/model/couples_samples.h"
#include "tanren/run/mesh.h"
#include "tanren/train/on_ranks.h"
#include "benchmarks/paired.h"
#include "benchmarks/step_cases.h"
#include "benchmarks/tanren_step.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tanren::bench {

struct StagedPlan {
  Plan plan;  // of the machine's rank, or of all threads
  std::vector<StagePlan> stages;
};

// Call it before ranks in threads begin, because a dry run allows no other thread. ConfigError if
// the model does not allow the requested cut.
inline StagedPlan plan_stages(const RunConfig& config, const OneBatch& data,
                              const Machine& machine) {
  const auto make_task = [&] { return build_task(config, ModelRegistry(), data); };
  const Task task = make_task();
  ModelProfile profile;
  profile_parameters(*task.module, profile);
  profile_objectives(task, profile);
  profile.couples_samples = couples_samples(*task.module);
  profile.train_samples = data.size();
  RunConfig whole = config;
  whole.parallel = {};
  const int64_t samples = std::min<int64_t>(data.size(), 2);
  const Batch few = batches_of(data, data.size()).front().local.slice(0, samples);
  profile.blocks = block_profile(make_plan(whole, Machine{}, profile), make_task, few);
  StagedPlan planned{.plan = make_plan(config, machine, profile), .stages = {}};
  const PipelineCut cut = cut_named(*profile.blocks, planned.plan.parallel.cut_at);
  planned.stages = stage_plans(*profile.blocks, cut, *task.module);
  return planned;
}

// Seconds of one update of a stage.
struct StageTimes {
  double update = 0;   // all of it
  double window = 0;   // its forwards and backwards, including waits
  double busy = 0;     // of the window, not waiting for another stage
  double forward = 0;  // of busy, in the model's forward
  double loss = 0;     // of the whole batch, the same on every stage

  double backward() const { return busy - forward; }  // includes sends and the rest
};

class StagedStep {
 public:
  // `plan` is this rank's, and `ranks` its mesh. All ranks must call this at the same time.
  StagedStep(const RunConfig& config, const OneBatch& data, const StagedPlan& planned,
             const Plan& plan, std::shared_ptr<const Ranks> ranks)
      : batch_(batches_of(data, data.size()).front()) {
    {
      static std::mutex one_at_a_time;  // threads draw weights from the process's generator
      const std::lock_guard lock(one_at_a_time);
      parts_ = build_parts(plan, nullptr);
      parts_.ranks = std::move(ranks);
      parts_.stage = stage_of(planned.stages, plan.parallel);
      state_ = build_run_state(build_task(config, ModelRegistry(), data), parts_);
    }
    auto& forward = state_.phases.front().spec.forward;
    forward = [this, inner = std::move(forward)](const Batch& piece) {
      const AddSeconds timer(forward_);  // all stages but the last leave by throwing
      return inner(piece);
    };
    begin_alike(state_, parts_);
  }
  StagedStep(const StagedStep&) = delete;
  StagedStep& operator=(const StagedStep&) = delete;

  StageTimes step() {
    forward_ = 0;
    StageTimes times;
    times.update =
        seconds([&] { times.loss = update(state_, parts_, batch_)->objectives.front().loss; });
    const StageTime& window = state_.phases.front().stage_time;
    times.window = window.seconds;
    times.busy = window.seconds - window.waited;
    times.forward = forward_;
    return times;
  }

 private:
  class AddSeconds {
   public:
    explicit AddSeconds(double& sum) : sum_(sum) {}
    ~AddSeconds() {
      sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    AddSeconds(const AddSeconds&) = delete;
    AddSeconds& operator=(const AddSeconds&) = delete;

   private:
    double& sum_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

  GlobalBatch batch_;
  Parts parts_;
  RunState state_;
  double forward_ = 0;
};

}  // namespace tanren::bench
