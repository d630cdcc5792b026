// Chooses microbatches so that every microstep has a number of samples that the model takes. This
// includes the last microstep of a rank's share of a batch, also of an epoch's short last batch.
// Internal to forecast/.
#pragma once

#include "tanren/forecast/predict.h"
#include "tanren/plan/plan.h"

#include <cstdint>
#include <string>

namespace tanren {

// The microbatch for a rank's share. batch.microbatch is the largest that may be returned. Prefers
// the same number of microsteps, of sizes as similar as possible, such that the model takes the
// last microbatch. If there is none, returns the largest microbatch with more microsteps for which
// the model does. If there is none either, returns the one with the most similar sizes. Ignores
// shares that no split can serve. `samples`: number of samples of the training data.
int64_t with_enough(const BatchPlan& batch, int64_t samples, const SampleCounts& counts);

// The plan's warning if a last microbatch has a number of samples that the model does not take.
// Empty if there is no such microbatch.
std::string too_few(const BatchPlan& batch, int64_t samples, const SampleCounts& counts);

}  // namespace tanren
