// The steps of a whole trial, where run.epochs says them: a fork opens the data and plans, since
// the sweep's own process runs no tensor operation. Used by the verb sweep.
#pragma once

#include "cli/sweep/sweep_place.h"

#include <cstdint>
#include <optional>

namespace tanren::cli {

// Empty: a signal came, and nothing was done. InputError or RunError with the line of what the fork
// met.
std::optional<int64_t> planned_steps_of(const SweepPlace& place, const Registry& registry);

}  // namespace tanren::cli
