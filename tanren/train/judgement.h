// The consequences of an evaluation: which step was the best, whether the run ends, and what a
// plateau schedule does. Called by train_loop.
#pragma once

#include "tanren/base/report.h"
#include "tanren/plan/plan.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Whether the results of evaluations change how the run continues.
bool evaluations_decide(const Plan& plan);

// Judges an evaluation of the run's step, once per step. If the report lacks a metric that the plan
// names, it throws ConfigError and changes nothing. True if the step is now among the best.
// `tells`: this rank logs.
bool judge(RunState& run, const Plan& plan, EvaluationReport& report, bool tells);

// Throws ConfigError if evaluations decide about the run but return no terms (`has_terms` is
// false).
void check_can_judge(const Plan& plan, bool has_terms);

}  // namespace tanren
