// The hook: a dispatch key above autocast and autograd, which no backend uses. torch takes one
// fall-through for a key in a process, so the hook owns it, and every room that wants to see
// operators puts its kernels here. Within an OperatorHookScope, the operators of its thread run
// these kernels. All other operators fall through. Dry runs and retries on a device take keys of
// their own. Called by precision/ and base/operator_listener.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch {
class Library;
}

namespace tanren {

// Calls `add` with the hook's library of torch's operators, to which it adds kernels for operators
// that have none there. Each room calls it once per process. Thread-safe.
void add_to_hook(void (*add)(torch::Library& operators));

// The keys below the hook. With them, a kernel of the hook calls the operator that it replaces.
c10::DispatchKeySet below_hook(c10::DispatchKeySet keys);

class OperatorHookScope {
 public:
  OperatorHookScope();
  OperatorHookScope(const OperatorHookScope&) = delete;
  OperatorHookScope& operator=(const OperatorHookScope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard open_;
};

}  // namespace tanren
