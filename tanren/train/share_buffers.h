// What ranks do with buffers after an update. Called by the step.
#pragma once

#include "tanren/parallel/data_parallel.h"
#include "tanren/train/run_state.h"

#include <vector>

namespace tanren {

// Each rank's forward saw its own samples alone, and one without samples none. Running statistics become
// the mean over samples, unless the plan says otherwise; all else is what the first rank with samples has.
// (Synchronised batch norm keeps the same on every rank: that changes none of it.) An objective that was
// not applied may have what another phase's forward left, which differs: it takes that rank's too.
// `samples` of each rank.
void share_buffers(const Phase& phase, const std::vector<Objective*>& applied,
                   const std::vector<double>& samples, const DataParallel& parallel);

}  // namespace tanren
