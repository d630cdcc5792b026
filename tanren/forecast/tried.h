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
  // Bytes of tensors that exist without the model, minus the bytes that its 8-bit weights save.
  int64_t standing_bytes = 0;
  bool couples_samples = false;  // batch norm
  bool has_evaluation = false;
  std::optional<ModelBlocks> blocks = {};  // of the config's model; needed with parallel.pipeline
  // With parallel.pipeline in processes: the least room that any rank's limit leaves a stage, so
  // that all ranks choose the same cut. 0: no other rank has a limit.
  int64_t least_room_bytes = 0;
  bool runs_dry = true;       // TaskFacts::runs_dry
  int64_t least_samples = 1;  // TaskFacts::least_samples: no smaller microbatch is tried
  // The most samples of a microbatch, and the number that their count must be a multiple of.
  // `least_samples` has the least.
  SampleCounts counts = {};
  bool may_probe = true;  // a model that cannot run dry may make real steps of few samples
  // The real steps already made. Never null.
  std::shared_ptr<ProbedSteps> probed = std::make_shared<ProbedSteps>();
};

// The least number of samples in a microbatch of the input's task, as far as `prediction` knows.
inline int64_t least_samples(const FitInput& input, const MemoryPrediction& prediction) {
  return std::max(input.least_samples, prediction.least_samples);
}

// The numbers of samples that a microbatch may have, as far as `prediction` knows.
inline SampleCounts sample_counts(const FitInput& input, const MemoryPrediction& prediction) {
  SampleCounts counts = input.counts;
  counts.least = least_samples(input, prediction);
  return counts;
}

// The predictor of another config of the input. The input must outlive it.
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
// Plans `config` and predicts its step. After a dry run, it limits the plan's threads to the number
// that the operators can use. Throws the errors of StepPredictor::step, and the ConfigErrors of
// make_plan and make_task.
Tried try_config(const FitInput& input, const RunConfig& config);

}  // namespace tanren
