// Where the numbers of a refused update went wrong. Called by the step.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/train/loss_meter.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"
#include "tanren/train/window.h"

#include <string>

namespace tanren {

// Names the microbatch and the parameter with non-finite numbers, for each rank that has any; or
// the count of 0 that divides a term. Empty for an overflow, which is no fault. Exchanges text
// between ranks.
std::string culprit(const Objective& objective, Cause cause, const Status& status,
                    const GlobalBatch& batch, const LossMeter& losses, const Ranks& ranks);

}  // namespace tanren
