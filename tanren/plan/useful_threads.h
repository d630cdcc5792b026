// How many threads the operators of a model can keep busy: a thread more than that waits at the end
// of every operator, which costs the step more than it saves. Pure functions of sizes. Called by forecast/fit_memory, which has
// the sizes from its dry run.
#pragma once

#include "tanren/base/operator_sizes.h"
#include "tanren/plan/plan.h"

namespace tanren {

// At least 1.
int64_t useful_threads(const OperatorSizes& sizes);

// Gives a plan on the CPU no more threads than that, and its line "threads" the reason; whether it took any away.
// run.threads is obeyed, and so is a plan whose sizes nobody knows.
bool limit_threads(const OperatorSizes& sizes, Plan& plan);

}  // namespace tanren
