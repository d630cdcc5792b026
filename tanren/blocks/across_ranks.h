// AcrossRanksScope: gives an operator that couples samples (batch norm) access to the other ranks'
// samples. The step opens one around a forward and another around its backward if the ranks run in
// step. Without one, an operator sees only this rank's samples. An operator must keep what it needs
// in backward, which may run on another thread. Invariant: within it every rank calls the same
// operators in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace tanren {

// row [n], with the same n and dtype on every rank → [ranks, n] in the order of the ranks, on row's
// device and bitwise the same on each rank.
using GatherRows = std::function<at::Tensor(const at::Tensor& row)>;

class AcrossRanksScope {
 public:
  // For this thread. Null: each rank sees only its own samples, even within another scope.
  explicit AcrossRanksScope(std::shared_ptr<const GatherRows> gather);
  ~AcrossRanksScope();
  AcrossRanksScope(const AcrossRanksScope&) = delete;
  AcrossRanksScope& operator=(const AcrossRanksScope&) = delete;

  // The `gather` of this thread's innermost scope; null if there is no scope.
  static std::shared_ptr<const GatherRows> current();

 private:
  std::shared_ptr<const GatherRows> gather_;
  const AcrossRanksScope* outer_;
};

}  // namespace tanren
