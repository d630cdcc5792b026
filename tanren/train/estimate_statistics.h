// Measures batch norm's running statistics for averaged weights. Statistics belong to the weights
// that they were measured with, so averaged weights need their own (torch: update_bn). Called
// before averaged weights are evaluated or exported, if the plan says "estimate".
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Measures the statistics of every batch norm (torch's and model/layers.h's) in training mode, with
// the averaged weights in place. The result is the mean over the microbatches of epoch 0 of `train`
// (augmented as in training; a short last one is left out; dropout off). It is stored in the
// averages; the raw model is unchanged. Does nothing while there is no average. The result depends
// only on weights, data and plan.
// Every rank calls it at the same time. Each rank measures some of the microbatches; their size is
// the smallest microbatch of any rank. If batch norm is synchronised, all ranks measure each
// microbatch together. Afterwards all ranks have the same statistics, which differ only by rounding
// from those of one rank with that microbatch. Throws CommError.
// Returns false if a stop request on some rank interrupted it. The statistics are then restored.
bool estimate_statistics(const RunState& run, const Parts& parts, const Dataset& train);

// The same for a state that only evaluates and whose weights are already the averages. Measures the
// batch norms whose statistics `averaged` names, and stores the result in the model.
bool measure_statistics(const RunState& run, const Parts& parts, const Dataset& train,
                        const TensorMap& averaged);

}  // namespace tanren
