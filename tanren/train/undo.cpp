#include "tanren/train/undo.h"

#include "tanren/base/generators.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <exception>
#include <set>

namespace tanren {

Undo::Undo(const RunState& run, at::Device device, bool with_generators) : device_(device) {
  std::set<const void*> seen;  // a buffer may belong to two objectives
  for (const auto& phase : run.phases) {
    for (const auto& objective : phase.objectives) {
      for (const auto& [tensor, norm] : objective.buffers) {
        const bool is_new = seen.insert(tensor.unsafeGetTensorImpl()).second;
        if (is_new) buffers_.emplace_back(tensor, tensor.clone());
      }
    }
  }
  if (with_generators) generators_ = generator_states(device_);
}

void Undo::restore(const std::vector<Objective*>& undone,
                   const std::vector<Objective*>& applied) const {
  if (applied.empty()) return restore_buffers();
  const auto has = [](const std::vector<Objective*>& objectives, const at::Tensor& tensor) {
    for (const Objective* objective : objectives) {
      for (const auto& buffer : objective->buffers) {
        if (tensor.is_same(buffer.tensor)) return true;
      }
    }
    return false;
  };
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, before] : buffers_) {
    if (has(undone, tensor) && !has(applied, tensor)) tensor.copy_(before);
  }
}

void Undo::restore_buffers() const {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, before] : buffers_) tensor.copy_(before);
}

void Undo::restore_all() const {
  restore_buffers();
  set_generator_states(device_, generators_);
}

void Undo::restore_after_error() const {
  try {
    restore_all();
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace tanren
