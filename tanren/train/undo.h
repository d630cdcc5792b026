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
  // The same. A device that failed may refuse it; the error is the news.
  void restore_after_error(const Phase& phase) const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // buffer, its value before
  TensorMap generators_;
};

// All that an evaluation and the estimate before it may draw and change, put back where they come to
// nothing: a run that goes on makes them anew. More than one rank seed torch's generators anew for each.
class Untouched {
 public:
  Untouched(const RunState& run, const DataParallel& parallel);
  void restore() const;
  // A device that failed may refuse it; the error is the news.
  void restore_after_error() const;

 private:
  const RunState& run_;
  std::vector<Undo> undos_;
};

}  // namespace tanren
