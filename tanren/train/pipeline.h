// The window of one stage of a pipeline: its forwards and backwards in the order of the schedule
// (base/pipeline_schedule.h), with what they receive and send. Invariant: each parameter of the
// stage gets the gradient that it has without stages, added in the same order; the loss is divided
// by the global count and scaled in the seed of the last stage's backward alone. Called by
// accumulate.
#pragma once

#include "tanren/base/task.h"
#include "tanren/plan/plan.h"
#include "tanren/train/microstep.h"
#include "tanren/train/run_state.h"

namespace tanren {

// ConfigError if a run of the task by this plan cannot be in stages.
void check_can_be_staged(const Task& task, const Plan& plan);

// Whether a stage before `stage` trains a parameter; if not, no gradient goes below it, and those
// stages keep nothing of a microbatch.
bool trains_below(const Phase& phase, const StagePlan& plan, int64_t stage);

// Accumulates the gradients of `piece` (on the run's device), of which each stage of the replica
// has all samples, into the phase's objective. The last stage adds the terms to `losses`, the
// others its microsteps alone. A replica without samples sends nothing. MemoryError if memory runs
// out: stages never split a microbatch further, since the others count on it.
void accumulate_stage(Phase& phase, const Batch& piece, const StepContext& context);

// Each stage that holds a parameter gets the sum of the gradients of all that hold it: the same
// sums over replicas, added in the order of the stages. After the reducer's finish(), on every
// stage of every replica. MemoryError if memory runs out.
void add_tied(Phase& phase, const StepContext& context);

}  // namespace tanren
