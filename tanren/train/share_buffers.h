// Makes buffers the same on all ranks after an update. Called by the step.
#pragma once

#include "tanren/parallel/ranks.h"
#include "tanren/train/run_state.h"

#include <vector>

namespace tanren {

// Each rank's forward saw its own samples alone, and a rank without samples saw none. Running
// statistics become the mean over samples, unless the plan says otherwise; all other buffers become
// those of the first rank with samples. (Synchronised batch norm keeps the same on every rank: this
// changes none of it.) A forward may pass through layers of any objective, so that the buffers of
// all are shared; those of `undone` objectives are what they were before the update, and need no
// mean. `samples`: of each replica.
void share_buffers(const RunState& run, const std::vector<Objective*>& undone,
                   const std::vector<double>& samples, const Ranks& ranks);

}  // namespace tanren
