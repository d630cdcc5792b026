// What a batch needs before a forward. Called by the step, evaluation and estimates.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/parts.h"

namespace tanren {

// The batch on the run's device, floating fields in the parameters' dtype in mode fp64, images
// [n, c, h, w] channels-last where the plan says so.
Batch prepared(const Batch& batch, const Parts& parts);

}  // namespace tanren
