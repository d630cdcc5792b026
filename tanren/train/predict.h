// One forward outside of training: the task's predictions for a batch, as evaluations and pictures
// need them. The caller sets eval mode and switches gradients off.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/memory/attempt.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"
#include "tanren/train/staged_forward.h"

#include <cstdint>
#include <functional>
#include <optional>

namespace tanren {

using Take = std::function<void(const Prediction&)>;

// Where a Take is called. in_attempt: memory may run out in it; it is then called again with a
// smaller piece, so a call that fails must change nothing. behind_attempt: a shortage in it is not
// handled.
enum class Taking { behind_attempt, in_attempt };

// Passes the predictions for `batch`, which must be prepared(), to `take`, in one piece or several.
// Returns a shortage if memory ran out before the first piece was taken. No exchange between ranks.
// ConfigError if the run is in stages.
std::optional<Shortage> predict(const RunState& run, const Parts& parts, const Batch& batch,
                                const Take& take, Taking taking = Taking::behind_attempt);

// The same for a run in stages. Only the last stage passes predictions to `take`. Throws
// MemoryError if memory runs out, because the other stages continue.
void predict_in_stages(const RunState& run, const Parts& parts, const Batch& batch,
                       StagedForward& staged, const Take& take);

// The outputs in the dtype that precision.cast_model_outputs says. predict() does it itself.
Prediction as_planned(Prediction prediction, const Plan& plan);

// The size to try after `size` samples or rows did not fit. Any split gives the same results,
// because in eval mode samples do not depend on each other, and rows of scores never do. Throws
// MemoryError if `size` is 1. `least`: the smallest number of samples in training. A new size above
// `least` is a multiple of it, because the model may require that.
int64_t smaller(int64_t size, const char* of, const char* key, const Shortage& shortage,
                const Parts& parts, int64_t least = 1);

}  // namespace tanren
