// The consequences of an evaluation: which step was the best, whether the run ends, what a schedule on a
// plateau does. Called by train_loop.
#pragma once

#include "tanren/base/report.h"
#include "tanren/plan/plan.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Whether what evaluations find changes how the run goes on.
bool evaluations_decide(const Plan& plan);

// Judges an evaluation of the run's step, once. All of it or nothing: ConfigError where the report lacks
// a metric that the plan names. True if the step is now among the best. `tells`: this rank logs.
bool judge(RunState& run, const Plan& plan, EvaluationReport& report, bool tells);

// ConfigError where an evaluation of such terms, or of none, could not be judged.
void check_can_judge(const Plan& plan, bool has_terms);

}  // namespace tanren
