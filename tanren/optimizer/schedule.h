// Learning-rate schedules as pure functions of the applied step (plateau.h has the one that depends
// on results). A warm-up of w steps gives peak × 1/w, 2/w, … w/w to the updates 0 … w-1, so no
// update has rate 0: one step ahead of transformers' get_*_schedule_with_warmup, whose first rate
// is 0 (for warm-up-stable-decay the last rate). From update w on, or without a warm-up, the rates
// equal theirs and those of torch's schedulers stepped once per update. Called by train_step and
// user-written loops.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/plan/plan.h"

#include <cstdint>

namespace tanren {

// The rate of the update after `step` applied updates of `total_steps`; finite and ≥ 0 for any step
// and total ≥ 0. A decay runs from `peak` at the end of the warm-up (for one_cycle: from the run's
// start) to its last value, which it reaches at `total_steps` (one_cycle, as in torch: at the last
// update) and keeps afterwards. reduce_on_plateau: the rate without reductions. ConfigError for an
// unknown kind.
double learning_rate(const ScheduleOptions& options, double peak, int64_t step,
                     int64_t total_steps);

// The plan's line about the schedule of the objective of that index: its kind, and the rates of the
// first, last warm-up, middle and last update. "schedule" for the first objective, then
// "objectives.NAME.schedule".
PlanLine schedule_line(const Plan& plan, size_t index, Source source);

}  // namespace tanren
