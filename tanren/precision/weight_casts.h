// WeightCastScope: while it lives, what this thread's autocast keeps of weights (a 16-bit copy of each,
// until the window ends) is marked MemoryKind::casts as it is made. Numbers do not change. Costs
// nothing but on casts themselves; the first scope of a process takes some milliseconds.
// Called by AutocastScope.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tanren {

class WeightCastScope {
 public:
  WeightCastScope();
  WeightCastScope(const WeightCastScope&) = delete;
  WeightCastScope& operator=(const WeightCastScope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard seen_;
};

}  // namespace tanren
