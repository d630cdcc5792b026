// What a run's first step works on, as text: the fields of its batch, and what each layer makes of
// them. Called by run/ before the first step, if run.debug is set.
#pragma once

#include "tanren/base/task.h"
#include "tanren/data/loader.h"
#include "tanren/plan/plan.h"

#include <functional>
#include <string>

namespace tanren {

// Loads rank 0's share of the batch at `start` and runs the forwards of all phases once without
// memory, as training_table (layer_table.h), on the first microstep's samples and with the plan's
// dtypes; on an accelerator, too, autocast goes by the CPU's lists. Changes nothing of the run. If
// the model needs values, the text says so and its later layers have no shapes. DataError as the
// loader. As for every dry run, no other thread may make tensors meanwhile.
std::string first_step_text(const Plan& plan, const std::function<Task()>& make_task,
                            const Dataset& train, Cursor start);

}  // namespace tanren
