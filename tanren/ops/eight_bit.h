// 8-bit numbers in blocks: a block's scale is its largest magnitude, and each element is one of 256
// values between -1 and 1, which are denser around 0 ("dynamic" 8-bit numbers, Dettmers 2016 and
// 2022). Optimizers and checkpoints store moments this way; called by both.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <bit>
#include <cstdint>

namespace tanren {

// The values, the bounds between them, and `start`: for each upper half of a float's bits, the code
// of the smallest float with that upper half. The floats of one upper half span at most one bound.
struct EightBitBook {
  explicit EightBitBook(bool is_signed);
  // The code whose value is nearest to `value` in [-1, 1] (or [0, 1]).
  uint8_t code(float value) const {
    const uint8_t code = start[std::bit_cast<uint32_t>(value) >> 16];
    return static_cast<uint8_t>(code + (value > bounds[code] ? 1 : 0));
  }

  std::array<float, 256> values;  // ascending
  std::array<float, 256> bounds{};
  std::array<uint8_t, 65536> start{};
};
// Signed: for first moments; unsigned: for squares.
const EightBitBook& eight_bit_book(bool is_signed);

// Converts codes (uint8, dense) and scales (fp32, one per block) to fp32, 1-dim, and back. Blocks
// are `block` successive elements in memory. Any device.
at::Tensor from_eight_bit(const at::Tensor& codes, const at::Tensor& scales, bool is_signed,
                          int64_t block);
void to_eight_bit(const at::Tensor& values, bool is_signed, int64_t block, const at::Tensor& codes,
                  const at::Tensor& scales);

}  // namespace tanren
