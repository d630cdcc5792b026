// The update of a run without its loop: config and data → plan → state, and one update per batch.
// Shared by the benchmarks of steps.
#pragma once

#include "tanren/model/registry.h"
#include "tanren/plan/planner.h"
#include "tanren/train/build.h"
#include "tanren/train/device.h"
#include "tanren/train/train_step.h"

#include <ATen/ATen.h>

#include <numeric>

namespace tanren::bench {

inline std::vector<GlobalBatch> batches_of(const Dataset& data, int64_t size) {
  std::vector<GlobalBatch> batches;
  for (int64_t begin = 0; begin + size <= data.size(); begin += size) {
    std::vector<int64_t> indices(static_cast<size_t>(size));
    std::iota(indices.begin(), indices.end(), begin);
    auto collated = data.collate(indices);
    batches.push_back({collated.batch, collated.counts, 0, begin + size});
  }
  return batches;
}

class TanrenStep {
 public:
  TanrenStep(const RunConfig& config, const Dataset& data) {
    Task task = build_task(config, ModelRegistry(), data);
    ModelProfile profile;
    profile_parameters(*task.module, profile);
    profile_objectives(task, profile);
    profile.train_samples = data.size();
    Machine machine;
    probe_accelerators(machine, config.run.device);
    parts_ = build_parts(make_plan(config, machine, profile), nullptr);
    state_ = build_run_state(std::move(task), parts_);
  }
  StepReport step(const GlobalBatch& batch) { return *update(state_, parts_, batch); }
  const RunState& state() const { return state_; }
  at::Device device() const { return parts_.device; }

 private:
  Parts parts_;
  RunState state_;
};

}  // namespace tanren::bench
