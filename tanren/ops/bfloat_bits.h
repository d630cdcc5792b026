// bfloat16 as its 16 bits, in a form that lets loops vectorise. Called by this room's kernels.
#pragma once

#include <bit>
#include <cstdint>

namespace tanren {

// Round to nearest even; a NaN becomes a quiet one.
[[gnu::always_inline]] inline uint16_t bfloat16_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(x != x ? 0x7FC0u : rounded);
}

[[gnu::always_inline]] inline float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace tanren
