// What a batch needs before a forward. Called by the step, evaluation and estimates.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/train/parts.h"

namespace tanren {

// The batch on the run's device. Floating fields get the parameters' dtype, but one of 16 bits only
// those that are not of the task's losses alone; images, [n, c, h, w], become channels-last if the
// plan says so.
Batch prepared(const Batch& batch, const Task& task, const Parts& parts);

}  // namespace tanren
