// quantized: a task with 8-bit weights. It is wrapped from outside: the model's code does not
// change, and a user's module is wrapped as ours are. Called by the code that reads whole models.
#pragma once

#include "tanren/base/task.h"
#include "tanren/quantize/quantized_parameters.h"
#include "tanren/quantize/replaced.h"

#include <memory>

namespace tanren {

// Replaces the task's parameters by the 8-bit ones (replaced.h), and runs its forwards, predict,
// predict_rows with its parts, and generate in a QuantizeScope. No parameter requires a gradient.
// Several threads may predict at once, as before. Code that calls the module itself reads NaN.
// A quantised task may be quantised again with other parameters: both sets are used. InputError as
// QuantizedLayers. Without parameters the task stays unchanged.
Task quantized(Task task, QuantizedParameters parameters,
               ReplacedNumbers numbers = ReplacedNumbers::there);
std::shared_ptr<Task> quantized(std::shared_ptr<Task> task, QuantizedParameters parameters);

}  // namespace tanren
