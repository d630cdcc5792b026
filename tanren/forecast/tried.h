// One config of a fit: its plan and the memory that its step needs. Called by fit_memory and by the
// searches over stages.
#pragma once

#include "tanren/forecast/limit_room.h"
#include "tanren/forecast/predict_stages.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

namespace tanren {

struct FitInput {
  RunConfig config;                                 // the plan's config
  std::function<Plan(const RunConfig&)> plan;       // make_plan for a changed config
  std::function<Task(const RunConfig&)> make_task;  // for a changed config
  const Dataset* dataset = nullptr;                 // never null
  // Of tensors that exist without the model, less what its 8-bit weights save.
  int64_t standing_bytes = 0;
  bool couples_samples = false;  // batch norm
  bool has_evaluation = false;
  std::optional<ModelBlocks> blocks = {};  // of the config's model; needed with parallel.pipeline
  // With parallel.pipeline in processes: the least that the limits of all ranks leave a stage, so
  // that all cut alike. 0: no other rank has a limit.
  int64_t least_room_bytes = 0;
  bool runs_dry = true;       // TaskFacts::runs_dry
  int64_t least_samples = 1;  // TaskFacts::least_samples: no smaller microbatch is tried
  // The most samples of a microbatch, and what their number is a multiple of; `least_samples` tells
  // the least.
  SampleCounts counts = {};
  bool may_probe = true;  // a model that cannot run dry may make real steps of few samples
  // The steps that it has made. Never null.
  std::shared_ptr<ProbedSteps> probed = std::make_shared<ProbedSteps>();
};

// Samples that a microbatch of the input's task has at least, as far as `prediction` tells.
inline int64_t least_samples(const FitInput& input, const MemoryPrediction& prediction) {
  return std::max(input.least_samples, prediction.least_samples);
}

// The numbers of samples that a microbatch may have, as far as `prediction` tells.
inline SampleCounts sample_counts(const FitInput& input, const MemoryPrediction& prediction) {
  SampleCounts counts = input.counts;
  counts.least = least_samples(input, prediction);
  return counts;
}

// The predictor of another config of the input, which outlives it.
StepPredictor predictor_of(const FitInput& input, const RunConfig& config);

// Bytes held during a step of `plan` besides the step's own: input.standing_bytes, and the batches
// that loader threads prepare ahead.
int64_t standing_beside(const FitInput& input, const Plan& plan);

// A config's plan and the memory that its step needs.
struct Tried {
  RunConfig config;
  Plan plan;
  MemoryPrediction prediction;
  bool fits = false;
};
// Plans `config` and predicts its step. By a dry run, the plan has no more threads than the
// operators can use. Error as StepPredictor::step; ConfigError as make_plan and make_task.
Tried try_config(const FitInput& input, const RunConfig& config);

}  // namespace tanren
