// OperatorSizes: how large the largest operators of a forward are. This limits how many threads
// they can keep busy. A dry run measures it (dry/dry_scope.h); plan/useful_threads.h reads it.
// Torch-free.
#pragma once

#include <cstdint>

namespace tanren {

struct OperatorSizes {
  int64_t elements = 0;       // of the largest result of one operator; 0: not measured
  int64_t multiply_adds = 0;  // of the largest matrix product, convolution or recurrence
  int64_t parameters = 0;     // updated by one pass of the optimizer
};

// Covers the forwards in this thread's DryScope since the last forget_dry_operator_sizes().
OperatorSizes dry_operator_sizes();
void forget_dry_operator_sizes();

}  // namespace tanren
