// task_within: a task whose forwards, predict, predict_rows with its parts, and generate each run
// in a Scope of their own. Called by quantized_task and fake_quantization.
#pragma once

#include "tanren/base/task.h"

#include <functional>
#include <memory>
#include <utility>

namespace tanren {

template <class Scope, class Layers, class Result, class... Arguments>
std::function<Result(Arguments...)> run_within(const std::shared_ptr<const Layers>& layers,
                                               std::function<Result(Arguments...)> inner) {
  if (!inner) return inner;
  return [layers, inner = std::move(inner)](Arguments... arguments) {
    const Scope scope(layers);
    return inner(std::forward<Arguments>(arguments)...);
  };
}

// Constructs each Scope from `layers`. Several threads may run the task at once if a Scope affects
// only its own thread.
template <class Scope, class Layers>
Task task_within(Task task, const std::shared_ptr<const Layers>& layers) {
  for (PhaseSpec& phase : task.phases) {
    phase.forward = run_within<Scope>(layers, std::move(phase.forward));
  }
  task.predict = run_within<Scope>(layers, std::move(task.predict));
  task.generate = run_within<Scope>(layers, std::move(task.generate));
  if (task.predict_rows) {
    const auto shared_work = run_within<Scope>(layers, std::move(task.predict_rows));
    task.predict_rows = [layers, shared_work](const Batch& batch) {
      PredictionRows rows = shared_work(batch);
      rows.part = run_within<Scope>(layers, std::move(rows.part));
      return rows;
    };
  }
  return task;
}

}  // namespace tanren
