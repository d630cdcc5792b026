// The preparation before a run's loop, shared by all verbs that make a plan. Internal to run/.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/forecast/fit_memory.h"
#include "tanren/interop/torch_state.h"
#include "tanren/quantize/fake_quantization.h"
#include "tanren/train/build.h"
#include "tanren/train/registry.h"
#include "tanren/train/stage_plan.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct Prepared {
  RunConfig config;  // with the kind and sizes from model.from_hf
  Datasets datasets;
  Task task;
  Plan plan;
  std::optional<OptimizerStart> optimizer;  // of optimizer.init_from, unless a checkpoint follows
  std::vector<StagePlan> stages;            // of parallel.pipeline, for replica 0 of 1; empty: none
  // The wrapping of the task by quantize.scheme; null: the task is as it was built.
  std::shared_ptr<const FakeQuantization> quantization;
  Task plain = {};  // the task before it was wrapped, for begin_quantized
  FitInput fit;     // for fit()
};

// Parts of the preparation that the caller supplies.
struct Given {
  Datasets datasets = {};  // without training data: those of the config
  // The task, with the weights that a checkpoint would bring; empty: built as the config says.
  std::function<Task(const ModelOptions&)> task = {};
};

// `has_weights`: a checkpoint will follow, so model.init_from is not read again, and what the run
// folder `kept` holds replaces the files that the run began with. `trains`: a model that cannot be
// trained in the available memory is refused before it is built; otherwise the plan has no stages
// (parallel.pipeline), since each rank gets the whole model.
Prepared prepare(const RunConfig& asked, const Registry& registry, bool has_weights,
                 const std::filesystem::path& kept, Given given = {}, bool trains = true);

// The config of ranks that each have the whole model. With ranks in threads there are as many
// replicas, of as many threads, as with stages.
RunConfig without_stages(RunConfig config, const Registry& registry);

// Loads a step folder into `state`. If several ranks read it together, each loads only the part
// that it needs.
void load_checkpoint(RunState& state, const std::filesystem::path& checkpoint, const Parts& parts);

// Call this before fit(), in each process of a run with stages: all processes then fit to the
// smallest limit and cut the model in the same way. An exchange: every rank calls it.
void agree_on_limit(Prepared& prepared, Communicator& ranks);

// Before training: changes the plan to one that fits into memory.
Fitted fit(Prepared& prepared);

// Before an evaluation alone: sets as many threads as training has, so that the results are the
// same.
void fit_threads(Prepared& prepared);

// "cpu,bf16,highest": the kind of device, the precision and the matmul precision that numbers
// depend on. Where the config says "auto", it differs from machine to machine.
std::string computed_in(const Plan& plan);

}  // namespace tanren
