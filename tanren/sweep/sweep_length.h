// The number of trials and steps of a sweep, as far as its config and the plan of its file
// determine them. Pure functions. Called by the verbs sweep and plan.
#pragma once

#include "tanren/config/run_config.h"

#include <cstdint>
#include <optional>
#include <string>

namespace tanren {

// The steps of a complete trial as set in the config. 0 if run.steps is searched or not set.
int64_t steps_of(const RunConfig& config);
// Whether the steps of a trial are taken from the file's plan (run.epochs). This is so if the
// config does not set them, and a scheduler needs them or no searched key can change them.
bool needs_planned_steps(const RunConfig& config);

// Trials that run at a time.
int64_t trials_at_a_time(const SweepOptions& options);

// The line of a plan that tells of [[sweep.space]].
struct SweepLine {
  std::string value;   // "64 trials, 2 at a time"
  std::string reason;  // "by tpe and asha; at most 57,600 steps, then 10,800 to confirm"
};
// `planned_steps`: of the file's own values. `config` has a space.
SweepLine sweep_line(const RunConfig& config, int64_t planned_steps);

}  // namespace tanren
