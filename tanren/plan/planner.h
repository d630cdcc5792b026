// make_plan: config, machine and facts → Plan, by a list of pure passes, each filling its own part
// and one printed line per decision. No hardware is touched, so every pass is a table test.
#pragma once

#include "tanren/plan/plan.h"

namespace tanren {

// ConfigError where the config asks for what this machine or this data cannot give.
Plan make_plan(const RunConfig& config, const Machine& machine, const ModelProfile& profile);

// The plan of one of the thread replicas that `plan` has (parallel.replicas): its rank and its device,
// all else is the same. ConfigError for a rank that is none of them.
Plan replica_plan(Plan plan, int64_t rank);

// Which ranks there are and how they talk, as in make_plan, before there is a model: what depends on it
// (replicas, buckets) is not filled. ConfigError.
ParallelPlan plan_connection(const RunConfig& config, const Machine& machine);

// What has to be set before there is a model: the allocator of its weights and the limit on it. As in
// make_plan, but for `recovery`, which depends on the model.
MemoryPlan plan_process_memory(const RunConfig& config, const Machine& machine);

}  // namespace tanren
