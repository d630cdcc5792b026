// How many threads the operators of a model can keep busy. Each further thread waits at the end of
// every operator, which costs the step more than it saves. Pure functions of sizes. Called by
// forecast/fit_memory, which has the sizes from its dry run.
#pragma once

#include "tanren/base/operator_sizes.h"
#include "tanren/plan/plan.h"

namespace tanren {

// At least 1.
int64_t useful_threads(const OperatorSizes& sizes);

// Limits the threads of a plan on the CPU to useful_threads() and writes the reason into its line
// "threads". Returns whether it removed any. Does nothing if run.threads is set or the sizes are
// unknown.
bool limit_threads(const OperatorSizes& sizes, Plan& plan);

}  // namespace tanren
