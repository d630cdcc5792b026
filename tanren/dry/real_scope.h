// RealScope: inside it, during a dry run (dry_scope.h), this thread's CPU tensors are real and
// kernels compute. Their memory comes from malloc: tanren's allocator neither counts nor limits it.
// A TraceScope inside it sees the memory that kernels take. Not while other threads make tensors.
// Internal to the dry run's operators.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tanren {

// The dry run's dispatch key. It is above autocast and autograd and belongs to no backend, so its
// fallback sees the operators that the program calls.
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
