// The figures of a run for summary.json, also of one that fails. Internal to run/.
#pragma once

#include "tanren/metrics/summary.h"
#include "tanren/run/run_folder.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"
#include "tanren/train/train_loop.h"

#include <optional>

namespace tanren {

Summary summarise(const RunState& state, const LoopResult& loop, const Parts& parts);

// If an exception leaves the scope, sets `reached` to the figures until then, unless it is null.
class ReachedScope {
 public:
  ReachedScope(std::optional<Summary>* reached, const RunState& state, const LoopResult& loop,
               const Parts& parts);
  ~ReachedScope();
  ReachedScope(const ReachedScope&) = delete;
  ReachedScope& operator=(const ReachedScope&) = delete;

 private:
  std::optional<Summary>* reached_;
  const RunState& state_;
  const LoopResult& loop_;
  const Parts& parts_;
  int exceptions_;
};

// Call this while the exception that ends the run is handled: writes the summary of the failed run
// (failed_summary), if the run had begun. `reached`: the figures of its loop, if it came that far.
// `seconds`: since the process began. Throws nothing, because an error here must not hide the first
// one.
void note_failure(const RunFolder& folder, const std::optional<Summary>& reached,
                  double seconds) noexcept;

}  // namespace tanren
