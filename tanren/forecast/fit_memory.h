// Fits a plan to the available memory. It predicts the step; if that does not fit, it takes the
// largest microbatch that fits, then recomputes blocks. A config that cannot fit is refused before
// the run starts. Called by run.cpp's prepare.
#pragma once

#include "tanren/forecast/tried.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

// "weights 1.3 GB, gradients 1.3 GB, …", the largest first.
std::string breakdown(const MemoryPrediction& prediction);

// The plan's line with this key, which is made if there is none.
PlanLine& plan_line(Plan& plan, const std::string& key);

struct Fitted {
  RunConfig config;
  Plan plan;
  // No value if neither a dry run nor a real step completed, or if the run is in stages.
  std::optional<MemoryPrediction> prediction = {};
  std::vector<std::string> remarks = {};     // unrequested changes to fit memory, a line each
  std::vector<StagePrediction> stages = {};  // of each; empty: no stages, or no dry run
};

// The config's plan, changed if memory requires it. Changes only keys that the config leaves open:
// batch.microbatch and memory.recompute, or with stages only parallel.cut_at. If nothing fits:
// ConfigError with the breakdown, the smallest limit that works and other changes that would help.
Fitted fit_memory(const FitInput& input);

// The predicted peak of a step in the memory that rank 0 of this process uses, summed over all
// ranks of the process in that memory. For stages on the CPU it includes the start before the first
// step. No value: nothing was predicted.
std::optional<int64_t> predicted_peak(const Fitted& fitted);

}  // namespace tanren
