// evaluation_forward: what an evaluation computes for one batch, for those that watch operators.
// Called by calibration.h and fold.h.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"

#include <functional>

namespace tanren {

// Runs task.predict_rows part after part, or task.predict where there is none, in eval mode and
// without gradients, and drops the results, which `see` is shown first. `batch` has the dtypes and
// the device of the module. Throws a ConfigError if the task has neither.
void evaluation_forward(const Task& task, const Batch& batch,
                        const std::function<void(const Prediction&)>& see = {});

}  // namespace tanren
