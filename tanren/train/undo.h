// Undo: restores the state after an update that is not applied or an evaluation that yields
// nothing: the objectives' buffers (batch-norm statistics that the forward changed) and, for an
// abandoned window or evaluation, the generators. Several ranks do not restore torch's generators,
// because they seed them for each update and each evaluation.
#pragma once

#include "tanren/train/run_state.h"

#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace tanren {

class Undo {
 public:
  // Remembers the buffers of all objectives: a forward may pass through layers of another phase.
  // with_generators: also remember torch's generators (5 KB), of the CPU and of the run's `device`.
  Undo(const RunState& run, at::Device device, bool with_generators);

  // Restores the buffers of the objectives that were not applied, except those that an `applied`
  // objective has too. Restores the buffers of all objectives if none was applied.
  void restore(const std::vector<Objective*>& undone, const std::vector<Objective*>& applied) const;
  // Everything, the generators included if they were remembered.
  void restore_all() const;
  // The same, but ignores errors, because a failed device cannot be restored and the earlier error
  // is the one to report.
  void restore_after_error() const;

 private:
  void restore_buffers() const;

  at::Device device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffer, its value before
  TensorMap generators_;
};

}  // namespace tanren
