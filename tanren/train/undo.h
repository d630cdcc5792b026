// What an update that is not applied must put back: the objectives' buffers (batch-norm statistics
// moved by the forward) and, for an abandoned window, the generators.
#pragma once

#include "tanren/parallel/data_parallel.h"
#include "tanren/train/run_state.h"

#include <utility>
#include <vector>

namespace tanren {

class Undo {
 public:
  // with_generators: also remember torch's generators (5 KB).
  Undo(const Phase& phase, bool with_generators);

  void restore(const Objective& objective) const;
  // Everything, the generators included if they were remembered.
  void restore_all(const Phase& phase) const;
  // The same, but ignores that a failed device cannot restore: the error before is the one to
  // report.
  void restore_after_error(const Phase& phase) const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffer, its value before
  TensorMap generators_;
};

// Everything that an evaluation, and the estimate before it, may draw and change. It is restored if
// they yield nothing; a run that continues makes them again. With more than one rank torch's
// generators are not restored, because they are seeded again for each evaluation.
class Untouched {
 public:
  Untouched(const RunState& run, const DataParallel& parallel);
  void restore() const;
  // The same, but ignores that a failed device cannot restore: the error before is the one to
  // report.
  void restore_after_error() const;

 private:
  const RunState& run_;
  std::vector<Undo> undos_;
};

}  // namespace tanren
