// Philox by the group: kGroup draws of one sample at a time, the inner loop of dropout.
// Invariant: every implementation gives the numbers of philox() in base/random.h.
// Called by dropout_kernel.cpp; thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace tanren {

constexpr int64_t kGroup = 64;  // draws: 16 Philox blocks of 4

// values[4 b + w] = word w of philox({first + b, 0, id low, id high}, key), for b < 16.
using DrawGroup = void (*)(std::array<uint32_t, 2> key, uint32_t first, int64_t id,
                           uint32_t* values);

void draw_group_portable(std::array<uint32_t, 2> key, uint32_t first, int64_t id, uint32_t* values);
// The fastest that this processor runs (philox_group_x86.cpp, or philox_group_any.cpp elsewhere).
DrawGroup best_draw_group();

}  // namespace tanren
