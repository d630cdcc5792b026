// Learning-rate schedules as pure functions of the applied step.
// learning_rate(0) belongs to the first update, and no update of a run has rate 0: a warm-up of w
// steps gives peak × 1/w, 2/w, … w/w to the updates 0 … w-1, one step ahead of transformers'
// get_*_schedule_with_warmup (whose first update is 0 and moves nothing). From update w on the
// rates equal theirs; without a warm-up they all do, as do torch's schedulers stepped once an
// update (their warm-up-stable-decay starts its warm-up at the last rate, ours below peak / w). What depends on results stands in plateau.h. Called by train_step, own loops.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/plan/plan.h"

#include <cstdint>

namespace tanren {

// The rate of the update that follows `step` applied ones, of `total_steps`; finite and ≥ 0 for any
// step and total ≥ 0. A decay runs from `peak` at the end of the warm-up (the run's start for
// one_cycle) to its last value, which it reaches at `total_steps` (one_cycle, as torch: at the last
// update) and keeps beyond. reduce_on_plateau: without its reductions. ConfigError for an unknown
// kind.
double learning_rate(const ScheduleOptions& options, double peak, int64_t step,
                     int64_t total_steps);

// What the plan prints of the schedule: its kind, and the rates of the first, last warm-up, middle
// and last update.
PlanLine schedule_line(const Plan& plan, Source source);

}  // namespace tanren
