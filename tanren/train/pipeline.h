// The window of one stage of a pipeline: its forwards and backwards in the order of the schedule
// (base/pipeline_schedule.h), with what they receive and send. Invariant: each parameter of the
// stage gets the same gradient as without stages, added in the same order. Only the seed of the
// last stage's backward divides the loss by the global count and scales it. Called by accumulate.
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

// Accumulates the gradients of `piece` (on the run's device) into the phase's objective. Each stage
// of the replica has all samples of `piece`. The last stage adds the terms to `losses`; the others
// add only the microsteps. A replica without samples sends nothing. Throws MemoryError if memory
// runs out, because the other stages expect the planned microbatches and no stage may split one
// further.
void accumulate_stage(Phase& phase, const Batch& piece, const StepContext& context);

// For each parameter that several stages hold, sets its gradient on each of them to the sum over
// these stages, added in the order of the stages. Call this after the reducer's finish(), on every
// stage of every replica. Throws MemoryError if memory runs out.
void add_tied(Phase& phase, const StepContext& context);

}  // namespace tanren
