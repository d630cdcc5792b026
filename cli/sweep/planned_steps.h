// The steps of a whole trial if run.epochs sets them. A fork opens the data and plans, because the
// sweep's own process runs no tensor operation. Used by the verb sweep.
#pragma once

#include "cli/sweep/sweep_place.h"

#include <cstdint>
#include <optional>

namespace tanren::cli {

// Empty if a signal came; nothing was done then. InputError or RunError with the error line of the
// fork.
std::optional<int64_t> planned_steps_of(const SweepPlace& place, const Registry& registry);

}  // namespace tanren::cli
