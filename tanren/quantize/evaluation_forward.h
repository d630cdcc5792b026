// evaluation_forward and training_forward: run an evaluation's or a training's forward on one
// batch, for code that watches its operators. Called by calibration.h, readers.h, fold.h and
// fake_scope.h.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"

#include <functional>

namespace tanren {

// Which forwards of a task are watched: a training may read a weight in another form than a
// prediction does.
enum class Forwards { predictions, training_too };

// Runs task.predict_rows part after part, or task.predict if the task has no predict_rows, in eval
// mode and without gradients. Passes each result to `see` and then drops it. `batch` has the dtypes
// and the device of the module. Throws a ConfigError if the task has neither.
void evaluation_forward(const Task& task, const Batch& batch,
                        const std::function<void(const Prediction&)>& see = {});

// The terms of a phase of the task, in eval mode and without gradients, with draws of seed 0.
Terms training_forward(const Task& task, const PhaseSpec& phase, const Batch& batch);

}  // namespace tanren
