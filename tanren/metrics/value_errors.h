// ValueErrors: mean squared and absolute error and R² of regressed values, streaming. Sums are in
// double on the device, centred on the first target, so that a large mean loses no precision and
// the split of the data changes nothing but rounding. Used by evaluation_metrics.
#pragma once

#include "tanren/comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

class ValueErrors {
 public:
  // outputs [n, …] and floating targets [n, …] of as many values per sample; RunError otherwise.
  void add(const at::Tensor& outputs, const at::Tensor& targets);

  // Joins what all ranks have added; a rank may have added nothing.
  void join_over(Communicator& ranks);

  // Returns {mse, mae, r2} as doubles on the device. Means over all values; R² is computed for each
  // value of a sample and averaged, as scikit-learn does. Targets that never differ give 1 if all
  // are predicted exactly and 0 if not; fewer than two samples give NaN.
  at::Tensor values() const;

 private:
  int64_t samples_ = 0;
  at::Tensor first_;  // [values of a sample], as are the sums
  at::Tensor squares_, absolutes_, targets_, target_squares_;
};

}  // namespace tanren
