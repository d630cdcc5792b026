#include "tanren/post_training/eight_bit_task.h"

#include "tanren/quantize/quantized_task.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tanren {

EightBitTask::EightBitTask(const Task& task, const QuantizedParameters& parameters) {
  const auto named = task.module->named_parameters();
  std::vector<std::pair<at::Tensor, bool>> trained;  // quantized() clears requires_grad
  for (const auto& item : named) {
    trained.emplace_back(item.value(), item.value().requires_grad());
  }
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor* const own = named.find(name);
    if (own == nullptr) continue;  // quantized() refuses it
    const bool is_second_name = std::any_of(swapped_.begin(), swapped_.end(), [&](const auto& one) {
      return one.parameter.is_same(*own);
    });
    if (is_second_name) continue;
    swapped_.push_back({*own, own->detach(), {}});
    // The parameter gets a copy, because quantized() frees its numbers and makes them NaN for all
    // tensors that share them.
    at::Tensor replaced = *own;
    replaced.set_data(own->detach().clone());
  }
  const auto put_back = c10::make_scope_exit([&] {
    swap(/*to_8_bit=*/false);
    for (auto& [parameter, is_trained] : trained) parameter.set_requires_grad(is_trained);
  });
  eight_bit_ = quantized(task, parameters);
  for (Swapped& one : swapped_) one.replaced = one.parameter.detach();
}

void EightBitTask::swap(bool to_8_bit) const {
  for (const Swapped& one : swapped_) {
    at::Tensor parameter = one.parameter;
    parameter.set_data(to_8_bit ? one.replaced : one.own);
  }
}

}  // namespace tanren
