// What a plan's step will hold in memory, found before it by a dry run of the step itself.
// Called by plan_only and run, and by whoever wants to know before a run of his own.
#pragma once

#include "tanren/base/memory_trace.h"
#include "tanren/base/task.h"
#include "tanren/data/dataset.h"
#include "tanren/plan/plan.h"

#include <array>
#include <functional>

namespace tanren {

struct MemoryPrediction {
  int64_t peak_bytes = 0;    // largest sum of what tensors hold, as the meter counts it
  int64_t before_bytes = 0;  // what is held before the first step
  std::array<int64_t, kNumMemoryKinds> at_peak = {};  // by MemoryKind; they sum to peak_bytes
};

// One training step of `plan` on samples as `dataset` has them. `make_task` is called in the dry run.
// Error where the model needs values, which a dry run has not.
MemoryPrediction predict_step(const std::function<Task()>& make_task, const Dataset& dataset,
                              const Plan& plan);

}  // namespace tanren
