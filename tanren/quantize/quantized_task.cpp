#include "tanren/quantize/quantized_task.h"

#include "tanren/quantize/quantize_scope.h"
#include "tanren/quantize/task_within.h"

#include <memory>
#include <utility>

namespace tanren {

Task quantized(Task task, QuantizedParameters parameters, ReplacedNumbers numbers) {
  if (parameters.empty()) return task;
  const std::shared_ptr<const QuantizedLayers> layers =
      std::make_shared<QuantizedLayers>(*task.module, std::move(parameters), numbers);
  // 8-bit operators have no gradient. Now a backward fails, instead of silently leaving out the
  // gradients below an 8-bit layer.
  for (const at::Tensor& parameter : task.module->parameters()) parameter.requires_grad_(false);
  return task_within<QuantizeScope>(std::move(task), layers);
}

std::shared_ptr<Task> quantized(std::shared_ptr<Task> task, QuantizedParameters parameters) {
  *task = quantized(*task, std::move(parameters));
  return task;
}

}  // namespace tanren
