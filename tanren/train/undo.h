// What an update that is not applied, or an evaluation that yields nothing, must put back: the
// objectives' buffers (batch-norm statistics moved by the forward) and, for an abandoned window or
// evaluation, the generators. Several ranks seed torch's generators again for each update and each
// evaluation, so that they need not be put back.
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

  void restore(const Objective& objective) const;
  // The buffers of all objectives.
  void restore_buffers() const;
  // Everything, the generators included if they were remembered.
  void restore_all() const;
  // The same, but ignores that a failed device cannot restore: the error before is the one to
  // report.
  void restore_after_error() const;

 private:
  at::Device device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffer, its value before
  TensorMap generators_;
};

}  // namespace tanren
