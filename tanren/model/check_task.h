// Whether a task has what a run calls: a program makes its own, and what is missing would show as a
// crash. Called where tasks are made (ModelRegistry) and where they are taken apart (make_phases).
#pragma once

#include "tanren/base/task.h"

#include <string>

namespace tanren {

// ConfigError naming what is missing: the module, phases, a phase's forward or objectives. Also for
// complex parameters and buffers, which no optimizer here trains and no checkpoint holds. `what` begins
// the line ("[model] kind 'x'").
void check_task(const Task& task, const std::string& what);

}  // namespace tanren
