#include "tanren/quantize/evaluation_forward.h"

#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/random.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace tanren {

void evaluation_forward(const Task& task, const Batch& batch,
                        const std::function<void(const Prediction&)>& see) {
  const auto show = [&](const Prediction& prediction) {
    if (see) see(prediction);
  };
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*task.module);
  if (!task.predict_rows) {
    if (!task.predict) {
      throw ConfigError("[quantize] the task has no predict, which shows its layers; set it");
    }
    return show(task.predict(batch));
  }
  const PredictionRows rows = task.predict_rows(batch);
  const int64_t at_once = std::max<int64_t>(rows.at_once, 1);
  for (int64_t begin = 0; begin < rows.rows; begin += at_once) {
    show(rows.part(begin, std::min(begin + at_once, rows.rows)));
  }
}

Terms training_forward(const Task& task, const PhaseSpec& phase, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*task.module);
  const RandomScope random(/*seed=*/0, /*attempt=*/0, batch.ids);
  return phase.forward(batch);
}

}  // namespace tanren
