// Build: Plan → RunState and Parts. One line per component, no logic: each component builds itself
// from its slice of the plan.
#pragma once

#include "tanren/data/registry.h"
#include "tanren/model/registry.h"
#include "tanren/train/device.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct Datasets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> eval;  // null if there is none
  std::string split;              // what data.split gives to `eval`, in words; empty: nothing
};

// With data.split, `train` and `eval` are two parts of data.train. If options.eval has a kind
// beside it, `eval` is all of that source.
Datasets open_datasets(const DataOptions& options, const DatasetRegistry& registry);

// Builds the task on the CPU in fp32, with weights drawn from run.seed. `has_weights`: the caller
// loads all weights, so kinds that create weights themselves (KindTraits) draw none.
Task build_task(const RunConfig& config, const ModelRegistry& models, const Dataset& train,
                bool has_weights = false);

// The module's weights and buffers by name: the tensors themselves, not copies.
TensorMap tensors_of(const torch::nn::Module& module);

// Adds what planning needs to know about the model's parameters.
void profile_parameters(const torch::nn::Module& module, ModelProfile& profile);

// Adds the task's objectives, and which of the model's parameters each may change.
void profile_objectives(const Task& task, ModelProfile& profile);

// The facts about task and data that the plan depends on.
ModelProfile profile(const Task& task, const Datasets& datasets);

// Sets the process-wide switches for `plan` and returns the run's behaviour.
Parts build_parts(const Plan& plan, const std::atomic<bool>* stop,
                  const AcceleratorKind& accelerators = {});

// Moves the task to the plan's device and dtype, and drops what this rank's stage does not hold. If
// `trains`, it also allocates gradients, optimizer state and averages. Otherwise the state can only
// evaluate.
RunState build_run_state(Task task, const Parts& parts, bool trains = true);

}  // namespace tanren
