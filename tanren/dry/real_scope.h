// RealScope: in a dry run (dry_scope.h), tensors on the CPU are real inside it, on this thread, and
// kernels compute. Their memory is malloc's: tanren's allocator neither counts nor limits it. A
// TraceScope inside it sees what kernels take. Not while other threads make tensors.
// Internal to the dry run's operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tanren {

// The dry run's dispatch key: above autocast and autograd, and no backend's, so that its fallback
// sees what the program calls.
constexpr auto kDryKey = c10::DispatchKey::DeferredInit;

class RealScope {
 public:
  RealScope();
  ~RealScope();
  RealScope(const RealScope&) = delete;
  RealScope& operator=(const RealScope&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard dry_{kDryKey};
  c10::impl::ExcludeDispatchKeyGuard autocast_{c10::autocast_dispatch_keyset};
  at::AutoDispatchBelowADInplaceOrView autograd_;
  c10::Allocator* before_;
};

}  // namespace tanren
