// Makes buffers the same on all ranks after an update. Called by the step.
#pragma once

#include "tanren/parallel/ranks.h"
#include "tanren/train/run_state.h"

#include <vector>

namespace tanren {

// Each rank's forward has seen only its own samples, or none. Running statistics become the mean
// over samples, unless the plan says otherwise. All other buffers become those of the first rank
// with samples. (Synchronised batch norm has equal statistics on every rank already, so this does
// not change them.) The buffers of all objectives are shared, because a forward may pass through
// layers of any objective. Buffers of `undone` objectives are as before the update and need no
// mean. `samples`: of each replica.
void share_buffers(const RunState& run, const std::vector<Objective*>& undone,
                   const std::vector<double>& samples, const Ranks& ranks);

}  // namespace tanren
