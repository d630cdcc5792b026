#include "tanren/quantize/quantized_task.h"

#include "tanren/quantize/quantize_scope.h"

#include <functional>
#include <memory>
#include <utility>

namespace tanren {
namespace {

using Layers = std::shared_ptr<const QuantizedLayers>;

template <class Result, class... Arguments>
std::function<Result(Arguments...)> answered_within(const Layers& layers,
                                                    std::function<Result(Arguments...)> inner) {
  if (!inner) return inner;
  return [layers, inner = std::move(inner)](Arguments... arguments) {
    const QuantizeScope scope(layers);
    return inner(std::forward<Arguments>(arguments)...);
  };
}

}  // namespace

Task quantized(Task task, QuantizedParameters parameters, ReplacedNumbers numbers) {
  if (parameters.empty()) return task;
  const Layers layers =
      std::make_shared<QuantizedLayers>(*task.module, std::move(parameters), numbers);
  // The answers have no gradients: a backward then says that there are none, instead of leaving out
  // those below an 8-bit layer.
  for (const at::Tensor& parameter : task.module->parameters()) parameter.requires_grad_(false);
  for (PhaseSpec& phase : task.phases) {
    phase.forward = answered_within(layers, std::move(phase.forward));
  }
  task.predict = answered_within(layers, std::move(task.predict));
  task.generate = answered_within(layers, std::move(task.generate));
  if (task.predict_rows) {
    const auto shared_work = answered_within(layers, std::move(task.predict_rows));
    task.predict_rows = [layers, shared_work](const Batch& batch) {
      PredictionRows rows = shared_work(batch);
      rows.part = answered_within(layers, std::move(rows.part));
      return rows;
    };
  }
  return task;
}

std::shared_ptr<Task> quantized(std::shared_ptr<Task> task, QuantizedParameters parameters) {
  *task = quantized(*task, std::move(parameters));
  return task;
}

}  // namespace tanren
