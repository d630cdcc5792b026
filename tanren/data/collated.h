// What collate gives, looked at before anybody uses it: a dataset of a program may forget the ids, and
// then nothing would be trained on, in silence. Everything that collates goes through here.
#pragma once

#include "tanren/data/dataset.h"

#include <vector>

namespace tanren {

// dataset.collate(indices); counts without "samples" get as many as there are. DataError naming what of
// batch.h's invariant does not hold, or the samples over which collate threw (its own Errors come out
// as they are).
Collated collated(const Dataset& dataset, const std::vector<int64_t>& indices);
// The same of collate_training.
Collated collated_for_training(const Dataset& dataset, const std::vector<int64_t>& indices,
                               const Draw& draw);

}  // namespace tanren
