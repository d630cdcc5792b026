// Fits a plan to the memory there is: predicts its step, and where that does not fit takes the
// largest microbatch that does, then recomputes blocks; what cannot fit is refused before it starts.
// Called by run.cpp's prepare.
#pragma once

#include "tanren/forecast/predict.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct FitInput {
  RunConfig config;                                 // as the plan's
  std::function<Plan(const RunConfig&)> plan;       // make_plan for a changed config
  std::function<Task(const RunConfig&)> make_task;  // for a changed config
  const Dataset* dataset = nullptr;                 // never null
  int64_t standing_bytes = 0;                       // tensors that are there without the model
  bool couples_samples = false;                     // batch norm
  bool has_evaluation = false;
};

// Bytes that stand beside a step of `plan`: the input's, and the batches that loader threads make ahead.
int64_t standing_beside(const FitInput& input, const Plan& plan);

// What the tensors of one rank may hold of the plan's limit, beside what is standing (thread replicas
// share it); 0: no limit is known.
int64_t room_for_step(const Plan& plan, int64_t standing_bytes);
// Whether a step with this peak goes into it, with what pages and holes between them take.
bool fits(int64_t peak_bytes, int64_t room_bytes);

// A config's plan and what it would take.
struct Tried {
  RunConfig config;
  Plan plan;
  MemoryPrediction prediction;
  bool fits = false;
};
// Dry; the plan has no more threads than the operators can use. Error where the model needs values;
// ConfigError as make_plan and make_task.
Tried try_config(const FitInput& input, const RunConfig& config);

struct Fitted {
  RunConfig config;
  Plan plan;
  std::optional<MemoryPrediction> prediction;  // none: the model cannot be run dry
  std::vector<std::string> remarks = {};  // what memory changed without being asked, a line each
};

// The config's plan, changed where memory asks for it: only what the config leaves open (batch.microbatch,
// memory.recompute). ConfigError with the breakdown, the smallest limit that works and what else
// would help, where nothing fits.
Fitted fit_memory(const FitInput& input);

}  // namespace tanren
