// Ranks that are threads of this process: each a replica of the model with its share of the cores or a
// device of its own. What one of them throws ends all, and comes out. Internal to run/.
#pragma once

#include "tanren/parallel/data_parallel.h"
#include "tanren/plan/plan.h"

#include <functional>

namespace tanren {

// Calls `work` with each rank's plan and its view of the others, rank 0 on this thread. Returns once
// all are back; throws what the first threw that was not told to stop by another.
void on_replicas(const Plan& plan,
                 const std::function<void(const Plan&, std::shared_ptr<const DataParallel>)>& work);

}  // namespace tanren
