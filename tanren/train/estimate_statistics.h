// Batch norm's running statistics belong to the weights that they were measured with, so averaged
// weights need their own (torch: update_bn). Called before averaged weights are evaluated or
// exported, if the plan says "estimate".
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Measures the statistics of every batch norm (torch's and model/layers.h's) that is training, with
// the averaged weights in place. The result is the mean over the microbatches of epoch 0 of `train`
// (augmented as in training; a short last one is left out; dropout off), and stays in the averages.
// The raw model is untouched. Does nothing while there is no average. A pure function of weights,
// data and plan.
// Every rank calls it at the same time. Each rank measures some of the microbatches, in the size of
// the rank with the smallest; if batch norm is synchronised, all ranks measure each microbatch
// together. All ranks then have the same statistics: to rounding, those of one rank with that
// microbatch. CommError.
// Returns false if a stop request on some rank interrupted it; the statistics are then of no use.
// If batch norm is synchronised it always runs to its end.
bool estimate_statistics(const RunState& run, const Parts& parts, const Dataset& train);

// The same for a state that only evaluates, whose weights are the averages already: the batch norms
// whose statistics `averaged` names are measured, and the result stays in the model.
bool measure_statistics(const RunState& run, const Parts& parts, const Dataset& train,
                        const TensorMap& averaged);

}  // namespace tanren
