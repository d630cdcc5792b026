// What a batch needs before a forward. Called by the step, evaluation and estimates.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/parts.h"

namespace tanren {

// The batch on the run's device. In mode fp64 floating fields get the parameters' dtype; images,
// [n, c, h, w], become channels-last if the plan says so.
Batch prepared(const Batch& batch, const Parts& parts);

}  // namespace tanren
