// Checks that a task has all parts that a run calls. Programs supply their own tasks, and a missing
// part would otherwise crash the run. Called by ModelRegistry and make_phases.
#pragma once

#include "tanren/base/task.h"

#include <string>

namespace tanren {

// ConfigError naming the missing part: the module, phases, a phase's forward or objectives. Also
// for two objectives of the same name, a term listed twice in one objective, an objective with
// `every` below 1, and a first objective with `every` other than 1. Also for complex parameters and
// buffers, because no optimizer here trains them and no checkpoint holds them. The message begins
// with `what` ("[model] kind 'x'").
void check_task(const Task& task, const std::string& what);

}  // namespace tanren
