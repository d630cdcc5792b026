// Which allocations the tests of shortages let fail: every `stride`-th, or all of them if
// TANREN_ALL_ALLOCATIONS is set, as by scripts/soak.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace tanren::testing {

inline int64_t allocation_stride(int64_t stride) {
  return std::getenv("TANREN_ALL_ALLOCATIONS") != nullptr ? 1 : stride;
}

}  // namespace tanren::testing
