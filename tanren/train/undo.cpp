#include "tanren/train/undo.h"

#include "tanren/base/generators.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <exception>

namespace tanren {

Undo::Undo(const Phase& phase, bool with_generators) {
  for (const auto& objective : phase.objectives) {
    for (const auto& buffer : objective.buffers) {
      buffers_.emplace_back(buffer.tensor, buffer.tensor.clone());
    }
  }
  if (with_generators) {
    generators_ = generator_states(phase.objectives.front().parameters.front().tensor.device());
  }
}

void Undo::restore(const Objective& objective) const {
  const at::NoGradGuard no_grad;
  for (const auto& buffer : objective.buffers) {
    for (const auto& [tensor, before] : buffers_) {
      if (tensor.is_same(buffer.tensor)) tensor.copy_(before);
    }
  }
}

void Undo::restore_all(const Phase& phase) const {
  for (const auto& objective : phase.objectives) restore(objective);
  set_generator_states(phase.objectives.front().parameters.front().tensor.device(), generators_);
}

void Undo::restore_after_error(const Phase& phase) const {
  try {
    restore_all(phase);
  } catch (const std::exception&) {
    return;
  }
}

Untouched::Untouched(const RunState& run, const DataParallel& parallel) : run_(run) {
  for (const auto& phase : run.phases) undos_.emplace_back(phase, parallel.alone());
}

void Untouched::restore() const {
  for (size_t i = 0; i < undos_.size(); ++i) undos_[i].restore_all(run_.phases[i]);
}

void Untouched::restore_after_error() const {
  for (size_t i = 0; i < undos_.size(); ++i) undos_[i].restore_after_error(run_.phases[i]);
}

}  // namespace tanren
