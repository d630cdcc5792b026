// A text about a run's first step: the fields of its batch and the output of each layer. Called by
// run/ before the first step, if run.debug is set.
#pragma once

#include "tanren/base/task.h"
#include "tanren/data/loader.h"
#include "tanren/plan/plan.h"

#include <functional>
#include <string>

namespace tanren {

// Loads rank 0's share of the batch at `start` and runs the forwards of all phases once without
// memory, with training_table (layer_table.h). It uses the first microstep's samples and the plan's
// dtypes. Autocast uses the CPU's lists even if the run is on an accelerator. The run's state does
// not change. If the model needs values, the text says so and later layers have no shapes. If the
// loader throws, the text contains its message. As in every dry run, no other thread may make
// tensors meanwhile.
std::string first_step_text(const Plan& plan, const std::function<Task()>& make_task,
                            const Dataset& train, Cursor start);

}  // namespace tanren
