// What an update that is not applied must put back: the objectives' buffers (batch-norm statistics
// moved by the forward) and, for an abandoned window, the generator.
#pragma once

#include "tanren/train/run_state.h"

namespace tanren {

class Undo {
 public:
  // with_generator: also remember torch's CPU generator (5 KB).
  Undo(const Phase& phase, bool with_generator);

  void restore(const Objective& objective) const;
  // Everything, the generator included if it was remembered.
  void restore_all(const Phase& phase) const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffer, its value before
  at::Tensor generator_;
};

}  // namespace tanren
