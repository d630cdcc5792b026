// make_plan: config, machine and facts → Plan, by a list of pure passes. Each pass fills its own
// part and adds one printed line per decision. No pass touches hardware, so each can be tested with
// tables.
#pragma once

#include "tanren/plan/plan.h"

namespace tanren {

// ConfigError if the config asks for something that this machine or this data cannot give. A config
// with stages in processes is planned as launched, even if no launcher started any.
Plan make_plan(const RunConfig& config, const Machine& machine, const ModelProfile& profile);

// The plan of rank `rank` of `plan`, a thread of this process: a copy with the rank and the device
// of that thread. ConfigError if `plan` has no such thread.
Plan replica_plan(Plan plan, int64_t rank);

// The ranks and their backend as in make_plan, before the model exists: what depends on the model
// (the number of replicas that the plan chooses, buckets) is preliminary. ConfigError.
ParallelPlan plan_connection(const RunConfig& config, const Machine& machine);

// What must be set before the model exists: the allocator of its weights and the limit on it. As in
// make_plan, except for `recovery`, which depends on the model.
MemoryPlan plan_process_memory(const RunConfig& config, const Machine& machine);

}  // namespace tanren
