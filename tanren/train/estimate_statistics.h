// Batch norm's running statistics belong to the weights that they were measured with; averaged
// weights need their own (torch: update_bn). Called before averaged weights are evaluated or
// exported, where the plan says "estimate".
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Measures the statistics of every batch norm (torch's and model/layers.h's) that is training, with the
// averaged weights in place, as the mean over microbatches of epoch 0 of `train` (augmented as in training;
// a short last one is left out; dropout off), and leaves them in the averages. The raw model is untouched.
// Does nothing while there is no average. A pure function of weights, data and plan.
// Every rank calls it at the same time. Each measures some of the microbatches, of the size of the rank with
// the smallest; where batch norm is synchronised they measure each together. All then have the same
// statistics, which are those of one rank with that microbatch to rounding. CommError.
// False where a stop request broke it off on some rank (synchronised, it is made to its end): the statistics
// are then of no use.
bool estimate_statistics(const RunState& run, const Parts& parts, const Dataset& train);

}  // namespace tanren
