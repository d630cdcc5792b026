// Learning-rate schedules as pure functions of the applied step.
// learning_rate(0) belongs to the first update, and no update of a run has rate 0: a warm-up of w
// steps gives peak × 1/w, 2/w, … w/w to the updates 0 … w-1, one step ahead of transformers'
// get_*_schedule_with_warmup (whose first update is 0 and moves nothing). From update w on the
// rates equal theirs; without a warm-up they all do. Called by train_step, own loops.
#pragma once

#include "tanren/config/run_config.h"

#include <cstdint>

namespace tanren {

// The rate of the update that follows `step` applied ones, of `total_steps`. The decay runs from
// `peak` at the end of the warm-up towards final_fraction × peak, which it reaches at `total_steps`
// and keeps beyond. ConfigError for an unknown kind.
double learning_rate(const ScheduleOptions& options, double peak, int64_t step,
                     int64_t total_steps);

}  // namespace tanren
