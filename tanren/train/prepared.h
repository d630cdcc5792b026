// Prepares a batch for a forward. Called by the step, evaluation and estimates.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/train/parts.h"

namespace tanren {

// Moves the batch to the run's device and converts floating fields to the parameters' dtype. If
// that dtype has 16 bits, fields that only the task's losses use (loss_fields) keep theirs. Images,
// [n, c, h, w], become channels-last if the plan says so.
Batch prepared(const Batch& batch, const Task& task, const Parts& parts);

}  // namespace tanren
