// Checks that a task has all parts that a run calls. Programs supply their own tasks, and a missing
// part would otherwise crash the run. Called by ModelRegistry and make_phases.
#pragma once

#include "tanren/base/task.h"

#include <string>

namespace tanren {

// ConfigError naming the missing part: the module, phases, a phase's forward or objectives. Also
// for two objectives of one name, one that is never in turn, and a first one that is not always in
// turn; and for complex parameters and buffers, which no optimizer here trains and no checkpoint
// holds. The message begins with `what` ("[model] kind 'x'").
void check_task(const Task& task, const std::string& what);

}  // namespace tanren
