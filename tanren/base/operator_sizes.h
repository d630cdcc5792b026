// OperatorSizes: how large the largest operators of a forward are. This limits how many threads
// they can keep busy. A dry run measures it (dry/forward_work.h); plan/useful_threads.h reads it.
// Torch-free.
#pragma once

#include <cstdint>

namespace tanren {

struct OperatorSizes {
  int64_t elements = 0;       // of the largest result of one operator; 0: not measured
  int64_t multiply_adds = 0;  // of the largest matrix product or convolution
  int64_t parameters = 0;     // updated by one pass of the optimizer
};

}  // namespace tanren
