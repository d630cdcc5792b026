#include "tanren/train/predict.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/step_error.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace tanren {

Prediction as_planned(Prediction prediction, const Plan& plan) {
  const auto& wanted = plan.precision.cast_model_outputs;
  if (wanted && prediction.outputs.defined() && prediction.outputs.is_floating_point()) {
    prediction.outputs = prediction.outputs.to(dtype_of(*wanted));
  }
  return prediction;
}

int64_t smaller(int64_t size, const char* of, const char* key, const Shortage& shortage,
                const Parts& parts, int64_t least) {
  if (size == 1 || parts.plan.memory.recovery == RecoveryMode::off) {
    throw MemoryError(
        fmt::format("[evaluate] out of memory with {} {}: {}", size, of, shortage.message));
  }
  parts.recovery->gauge().release_cache();
  const int64_t half = size / 2, next = half > least && least > 1 ? half - half % least : half;
  log(fmt::format("[memory] evaluation: out of memory with {} {}, now {} at once; {} sets it", size,
                  of, next, key));
  return next;
}

namespace {

// Takes each row once, as many at a time as memory allows.
void take_rows(const PredictionRows& rows, const Parts& parts, const Take& take, Taking taking) {
  int64_t most = std::max<int64_t>(rows.at_once, 1);
  for (int64_t begin = 0; begin < rows.rows;) {
    const int64_t end = std::min(begin + most, rows.rows);
    Prediction prediction;
    const auto forward = [&] {
      const AutocastScope autocast(parts.device.type(), parts.plan.precision);
      prediction = as_planned(rows.part(begin, end), parts.plan);
    };
    const auto shortage = attempt([&] {
      forward();
      if (taking == Taking::in_attempt) take(prediction);
    });
    if (shortage) {
      prediction = {};
      most = smaller(end - begin, "rows of scores", "model.loss_chunk", *shortage, parts);
      continue;
    }
    if (taking == Taking::behind_attempt) take(prediction);
    begin = end;
  }
}

// Passes the predictions for `batch` to `take`, in one piece or several. Returns a shortage if
// memory ran out before the first piece; then nothing was passed. `staged`: makes the forward of
// this stage; null if the run has no stages.
std::optional<Shortage> predict_all(const RunState& run, const Parts& parts, const Batch& batch,
                                    StagedForward* staged, const Take& take, Taking taking) {
  const RandomScope random(run.seed, run.attempt, batch.ids);
  const WindowScope window(parts.plan.precision, parts.ranks->open_windows());
  const bool by_rows = static_cast<bool>(run.task.predict_rows);
  PredictionRows rows;
  Prediction whole;
  const auto forward = [&] {
    const AutocastScope autocast(parts.device.type(), parts.plan.precision);
    if (by_rows) {
      rows = run.task.predict_rows(batch);
    } else {
      whole = as_planned(run.task.predict(batch), parts.plan);
    }
  };
  auto shortage = attempt([&] {
    if (staged != nullptr) {
      staged->run(batch, forward);
    } else {
      forward();
    }
    if (!by_rows && taking == Taking::in_attempt) take(whole);
  });
  if (shortage || (staged != nullptr && !staged->is_last())) return shortage;
  if (by_rows) {
    take_rows(rows, parts, take, taking);
  } else if (taking == Taking::behind_attempt) {
    take(whole);
  }
  return shortage;
}

std::optional<Shortage> predict_located(const RunState& run, const Parts& parts, const Batch& batch,
                                        StagedForward* staged, const Take& take, Taking taking) {
  block_trail().failed = 0;  // may be left from a shortage before
  try {
    return predict_all(run, parts, batch, staged, take, taking);
  } catch (...) {
    throw_located({.work = "evaluation",
                   .piece = batch,
                   .ranks = *parts.ranks,
                   .fix = run.task.predict_rows ? "predict_rows" : "predict"});
  }
}

}  // namespace

std::optional<Shortage> predict(const RunState& run, const Parts& parts, const Batch& batch,
                                const Take& take, Taking taking) {
  if (run.stage != nullptr && run.stage->stages() > 1) {
    throw ConfigError(
        "[pipeline] pictures and predictions outside of evaluations need the whole model on one "
        "rank; make them from an export, or drop them");
  }
  return predict_located(run, parts, batch, /*staged=*/nullptr, take, taking);
}

void predict_in_stages(const RunState& run, const Parts& parts, const Batch& batch,
                       StagedForward& staged, const Take& take) {
  const auto shortage = predict_located(run, parts, batch, &staged, take, Taking::behind_attempt);
  if (!shortage) return;
  throw MemoryError(
      fmt::format("[evaluate] stage {} of {}: out of memory with {} samples: {}; take a smaller "
                  "evaluate.batch",
                  run.stage->stage + 1, run.stage->stages(), batch.size(), shortage->message));
}

}  // namespace tanren
