#include "tanren/post_training/eight_bit_task.h"

#include "tanren/quantize/quantized_task.h"

#include <ATen/ATen.h>

namespace tanren {

EightBitTask::EightBitTask(const Task& task, const QuantizedParameters& parameters) {
  const auto named = task.module->named_parameters();
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor* const own = named.find(name);
    if (own == nullptr) continue;  // quantized() refuses it
    swapped_.push_back({*own, own->detach(), {}, own->requires_grad()});
  }
  eight_bit_ = quantized(task, parameters);
  for (Swapped& one : swapped_) one.replaced = one.parameter.detach();
  swap(/*to_8_bit=*/false);
}

void EightBitTask::swap(bool to_8_bit) const {
  for (const Swapped& one : swapped_) {
    at::Tensor parameter = one.parameter;
    parameter.set_data(to_8_bit ? one.replaced : one.own);
    parameter.set_requires_grad(!to_8_bit && one.requires_grad);
  }
}

}  // namespace tanren
