// Fits a plan to the available memory. It predicts the step; if that does not fit, it takes the
// largest microbatch that fits, then recomputes blocks. A config that cannot fit is refused before
// the run starts. Called by run.cpp's prepare.
#pragma once

#include "tanren/forecast/predict.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct FitInput {
  RunConfig config;                                 // the plan's config
  std::function<Plan(const RunConfig&)> plan;       // make_plan for a changed config
  std::function<Task(const RunConfig&)> make_task;  // for a changed config
  const Dataset* dataset = nullptr;                 // never null
  int64_t standing_bytes = 0;                       // of tensors that exist without the model
  bool couples_samples = false;                     // batch norm
  bool has_evaluation = false;
};

// Why no peak is predicted with parallel.pipeline.
inline constexpr const char* kUnknownInStages =
    "a dry run has no other stages to receive from; stage_1 and those after it say what each keeps "
    "beside batches and temporaries";

// Bytes held during a step of `plan` besides the step's own: input.standing_bytes, and the batches
// that loader threads prepare ahead.
int64_t standing_beside(const FitInput& input, const Plan& plan);

// Bytes of the plan's limit that are left for the tensors of one rank, after `standing_bytes`
// (ranks in threads share the limit); 0: no limit is known.
int64_t room_for_step(const Plan& plan, int64_t standing_bytes);
// Whether a step with this peak fits into the room, including page rounding and fragmentation.
bool fits(int64_t peak_bytes, int64_t room_bytes);

// A config's plan and the memory that its step needs.
struct Tried {
  RunConfig config;
  Plan plan;
  MemoryPrediction prediction;
  bool fits = false;
};
// Plans `config` and predicts its step by a dry run. The plan has no more threads than the
// operators can use. Error if the model needs values; ConfigError as make_plan and make_task.
Tried try_config(const FitInput& input, const RunConfig& config);

struct Fitted {
  RunConfig config;
  Plan plan;
  std::optional<MemoryPrediction> prediction;  // none: the model cannot be dry-run
  std::vector<std::string> remarks = {};  // what memory changed without being asked, a line each
};

// The config's plan, changed if memory requires it, and only in what the config leaves open
// (batch.microbatch, memory.recompute); a plan with stages is not changed. If nothing fits:
// ConfigError with the breakdown, the smallest limit that works and other changes that would help.
Fitted fit_memory(const FitInput& input);

}  // namespace tanren
