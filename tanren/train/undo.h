// What an update that is not applied must put back: the objectives' buffers (batch-norm statistics
// moved by the forward) and, for an abandoned window, the generators.
#pragma once

#include "tanren/train/run_state.h"

namespace tanren {

class Undo {
 public:
  // with_generators: also remember torch's generators (5 KB).
  Undo(const Phase& phase, bool with_generators);

  void restore(const Objective& objective) const;
  // Everything, the generators included if they were remembered.
  void restore_all(const Phase& phase) const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffer, its value before
  TensorMap generators_;
};

}  // namespace tanren
