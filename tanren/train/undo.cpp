#include "tanren/train/undo.h"

#include <ATen/ATen.h>

namespace tanren {

Undo::Undo(const Phase& phase, bool with_generator) {
  for (const auto& objective : phase.objectives) {
    for (const auto& buffer : objective.buffers) buffers_.emplace_back(buffer, buffer.clone());
  }
  if (with_generator) {
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator_ = generator.get_state();
  }
}

void Undo::restore(const Objective& objective) const {
  const at::NoGradGuard no_grad;
  for (at::Tensor buffer : objective.buffers) {
    for (const auto& [tensor, before] : buffers_) {
      if (tensor.is_same(buffer)) buffer.copy_(before);
    }
  }
}

void Undo::restore_all(const Phase& phase) const {
  for (const auto& objective : phase.objectives) restore(objective);
  if (generator_.defined()) {
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(generator_);
  }
}

}  // namespace tanren
