// Microbatches that leave every microstep a number of samples that the model takes: also the last
// one of a rank's share of a batch, and that of an epoch's short last batch. Internal to forecast/.
#pragma once

#include "tanren/forecast/predict.h"
#include "tanren/plan/plan.h"

#include <cstdint>
#include <string>

namespace tanren {

// The microbatch that splits a rank's share as the batch's own one does, the largest that may be:
// into as many microsteps, of as similar sizes as leave no last microbatch that the model does not
// take. If none does, the largest of those with more microsteps that does; else the most similar
// sizes. Shares that no split serves do not count. `samples`: of the training data.
int64_t with_enough(const BatchPlan& batch, int64_t samples, const SampleCounts& counts);

// What a plan must say of a microbatch that leaves samples that the model does not take; empty: it
// leaves none.
std::string too_few(const BatchPlan& batch, int64_t samples, const SampleCounts& counts);

}  // namespace tanren
