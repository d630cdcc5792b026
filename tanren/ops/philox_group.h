// Philox in groups: kGroup draws of one sample at a time, the inner loop of dropout.
// Invariant: every implementation gives the numbers of philox() in base/random.h.
// Called by dropout_kernel.cpp and attention_kernel.cpp; thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace tanren {

constexpr int64_t kGroup = 64;  // draws: 16 Philox blocks of 4

// values[4 b + w] = word w of philox({block low, block high, id low, id high}, key), where block is
// first + b, for b < 16. first is a multiple of 16.
using DrawGroup = void (*)(std::array<uint32_t, 2> key, uint64_t first, int64_t id,
                           uint32_t* values);

void draw_group_portable(std::array<uint32_t, 2> key, uint64_t first, int64_t id, uint32_t* values);
// The fastest version that this processor runs (philox_group_x86.cpp; on others
// philox_group_any.cpp).
DrawGroup best_draw_group();

}  // namespace tanren
