// WeightCastScope: while it lives, the copies of weights that this thread's autocast caches (a
// 16-bit copy of each, until the window ends) are marked MemoryKind::casts as they are made.
// Numbers do not change. Costs nothing except on the casts themselves; the first scope of a process
// takes some milliseconds. Called by AutocastScope.
#pragma once

#include "tanren/base/operator_hook.h"

namespace tanren {

class WeightCastScope {
 public:
  WeightCastScope();
  WeightCastScope(const WeightCastScope&) = delete;
  WeightCastScope& operator=(const WeightCastScope&) = delete;

 private:
  OperatorHookScope hook_;
};

}  // namespace tanren
