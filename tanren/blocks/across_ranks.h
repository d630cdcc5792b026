// AcrossRanksScope: the way by which an operator that couples samples (batch norm) reaches those of the
// other ranks. The step opens one around a forward and its backward where ranks go in step; without one
// an operator sees this rank's samples alone. What an operator needs in backward it keeps: there it may
// run on another thread. Invariant: within it every rank calls the same operators in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace tanren {

// row [n], of one n and dtype on every rank → [ranks, n] in the order of the ranks, on row's device and
// bitwise the same on each.
using GatherRows = std::function<at::Tensor(const at::Tensor& row)>;

class AcrossRanksScope {
 public:
  // For this thread; null: each rank for itself, also within another scope.
  explicit AcrossRanksScope(std::shared_ptr<const GatherRows> gather);
  ~AcrossRanksScope();
  AcrossRanksScope(const AcrossRanksScope&) = delete;
  AcrossRanksScope& operator=(const AcrossRanksScope&) = delete;

  // Of this thread's innermost scope; null without one.
  static std::shared_ptr<const GatherRows> current();

 private:
  std::shared_ptr<const GatherRows> gather_;
  const AcrossRanksScope* outer_;
};

}  // namespace tanren
