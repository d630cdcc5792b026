// Checks what collate returns before it is used, because a program's own dataset may forget the
// ids. Training would then use no sample, without an error. All callers of collate go through here.
#pragma once

#include "tanren/data/dataset.h"

#include <vector>

namespace tanren {

// Returns dataset.collate(indices); if counts lack "samples", sets it to the size of the batch.
// DataError names the violated part of batch.h's invariant. If collate throws something that is not
// an Error, DataError names the requested samples. Errors of collate pass through unchanged.
Collated collated(const Dataset& dataset, const std::vector<int64_t>& indices);
// The same for collate_training.
Collated collated_for_training(const Dataset& dataset, const std::vector<int64_t>& indices,
                               const Draw& draw);

}  // namespace tanren
