// Checks what collate returns before it is used: a program's own dataset may forget the ids, and
// then nothing would be trained on, without an error. All callers of collate go through here.
#pragma once

#include "tanren/data/dataset.h"

#include <vector>

namespace tanren {

// Returns dataset.collate(indices); if counts lack "samples", sets it to the size of the batch.
// DataError naming the violated part of batch.h's invariant, or, if collate threw, the samples it
// was called with (Errors that collate throws pass through unchanged).
Collated collated(const Dataset& dataset, const std::vector<int64_t>& indices);
// The same for collate_training.
Collated collated_for_training(const Dataset& dataset, const std::vector<int64_t>& indices,
                               const Draw& draw);

}  // namespace tanren
