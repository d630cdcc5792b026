// Ranks that are threads of this process: each is a replica of the model, or of a stage, with its
// share of the cores or with its own device. An exception in one ends all of them, and is rethrown.
// Internal to run/.
#pragma once

#include "tanren/parallel/ranks.h"
#include "tanren/plan/plan.h"

#include <functional>

namespace tanren {

// Calls `work` with each rank's plan and its view of the other ranks; rank 0 runs on this thread.
// Returns once all ranks have returned. Rethrows the first exception, not those of ranks that it
// cancelled.
void on_thread_ranks(const Plan& plan,
                     const std::function<void(const Plan&, std::shared_ptr<const Ranks>)>& work);

}  // namespace tanren
