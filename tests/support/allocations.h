// Which allocations the tests of shortages let fail: every `stride`-th from another first one in
// each run, or all of them if TANREN_ALL_ALLOCATIONS is set, as by scripts/soak.
// TANREN_FIRST_ALLOCATION, set to an allocation that a run failed at, repeats that run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace tanren::testing {

inline int64_t allocation_stride(int64_t stride) {
  return std::getenv("TANREN_ALL_ALLOCATIONS") != nullptr ? 1 : stride;
}

// Below `stride`, which allocation_stride() gave.
inline int64_t first_allocation(int64_t stride) {
  const char* const asked = std::getenv("TANREN_FIRST_ALLOCATION");
  const int64_t any = asked != nullptr ? std::stoll(asked) : std::random_device()();
  return any % stride;
}

}  // namespace tanren::testing
