// Selects the allocations that tests of memory shortages let fail: every `stride`-th one, from a
// random first one in each run. With TANREN_ALL_ALLOCATIONS (scripts/soak sets it), all of them. To
// repeat a failed run, set TANREN_FIRST_ALLOCATION to the allocation that it failed at.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace tanren::testing {

inline int64_t allocation_stride(int64_t stride) {
  return std::getenv("TANREN_ALL_ALLOCATIONS") != nullptr ? 1 : stride;
}

// A random number below `stride`, which is a result of allocation_stride().
inline int64_t first_allocation(int64_t stride) {
  const char* const asked = std::getenv("TANREN_FIRST_ALLOCATION");
  const int64_t any = asked != nullptr ? std::stoll(asked) : std::random_device()();
  return any % stride;
}

}  // namespace tanren::testing
