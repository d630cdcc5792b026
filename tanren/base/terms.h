// Term: one summed part of a loss. A loss function never divides: `sum` is over the samples of a
// microbatch, and train_step divides once by the *global* count of `count_name`, so N microbatches
// or N ranks give exactly one batch's gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tanren {

struct Term {
  std::string name;                    // "cross_entropy", "l1", …
  at::Tensor sum;                      // 0-dim, on the device, with its graph
  std::string count_name = "samples";  // which count it is divided by
};
using Terms = std::vector<Term>;

}  // namespace tanren
