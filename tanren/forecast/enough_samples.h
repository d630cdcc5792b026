// Microbatches that leave no microstep fewer samples than the model takes: neither the last one of
// a rank's share of a batch, nor that of an epoch's short last batch. Internal to forecast/.
#pragma once

#include "tanren/plan/plan.h"

#include <cstdint>
#include <string>

namespace tanren {

// The microbatch next below `even`, else above it up to the batch's own, that leaves no last
// microbatch of fewer samples than `least`, but in shares that have fewer themselves; `even` if
// there is none. `samples`: of the training data.
int64_t with_enough(const BatchPlan& batch, int64_t samples, int64_t even, int64_t least);

// What a plan must say of a microbatch that leaves too few samples; empty: it leaves none.
std::string too_few(const BatchPlan& batch, int64_t samples, int64_t least);

}  // namespace tanren
