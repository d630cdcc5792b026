#include "tanren/ops/eight_bit.h"

#include "tanren/ops/memory_order.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tanren {

namespace {

// Seven decades, each split into equal parts whose middles are the values; each decade has half as
// many values as the next higher one. With 0 and 1 that makes 256.
std::array<float, 256> make_values(bool is_signed) {
  std::vector<double> values = {0.0, 1.0};
  constexpr int kDecades = 7;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    const double top = std::pow(10.0, decade - (kDecades - 1));
    for (int i = 0; i < parts; ++i) {
      const double value = top * (0.1 + 0.9 * (i + 0.5) / parts);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> result{};
  std::transform(values.begin(), values.end(), result.begin(),
                 [](double value) { return static_cast<float>(value); });
  return result;
}

at::Tensor table(bool is_signed, at::Device device) {
  return at::from_blob(const_cast<float*>(eight_bit_book(is_signed).values.data()), {256},
                       at::kFloat)
      .to(device, at::kFloat, /*non_blocking=*/true, /*copy=*/true);
}

// [blocks, block], padded with zeros at the end.
at::Tensor in_blocks(const at::Tensor& flat, int64_t block) {
  const int64_t rest = (block - flat.numel() % block) % block;
  return at::constant_pad_nd(flat, {0, rest}).view({-1, block});
}

}  // namespace

EightBitBook::EightBitBook(bool is_signed) : values(make_values(is_signed)) {
  for (size_t i = 0; i + 1 < 256; ++i) bounds[i] = (values[i] + values[i + 1]) / 2;
  bounds[255] = std::numeric_limits<float>::infinity();
  // A value above 0 must not become 0, because an update divides by the root of the squares.
  if (!is_signed) bounds[0] = 0;
  for (uint32_t high = 0; high < start.size(); ++high) {
    const bool is_negative = (high & 0x8000) != 0;
    const auto smallest = std::bit_cast<float>((high << 16) | (is_negative ? 0xffffU : 0U));
    const auto above = std::lower_bound(bounds.begin(), bounds.end() - 1, smallest);
    start[high] = std::isnan(smallest) ? 0 : static_cast<uint8_t>(above - bounds.begin());
  }
}

const EightBitBook& eight_bit_book(bool is_signed) {
  static const EightBitBook with_sign(true), without(false);
  return is_signed ? with_sign : without;
}

at::Tensor from_eight_bit(const at::Tensor& codes, const at::Tensor& scales, bool is_signed,
                          int64_t block) {
  const at::Tensor values =
      table(is_signed, codes.device()).index_select(0, in_memory(codes).to(at::kInt));
  return in_blocks(values, block).mul_(scales.unsqueeze(1)).view({-1}).slice(0, 0, codes.numel());
}

void to_eight_bit(const at::Tensor& values, bool is_signed, int64_t block, const at::Tensor& codes,
                  const at::Tensor& scales) {
  const at::Tensor blocks = in_blocks(values, block);
  scales.copy_(blocks.abs().amax(1));
  const at::Tensor safe = at::where(scales > 0, scales, at::ones_like(scales));
  const at::Tensor of = table(is_signed, values.device());
  at::Tensor bounds = (of.slice(0, 0, 255) + of.slice(0, 1, 256)) / 2;
  if (!is_signed) bounds[0].zero_();  // as in EightBitBook
  const at::Tensor found = at::bucketize((blocks / safe.unsqueeze(1)).view({-1}), bounds);
  in_memory(codes).copy_(found.slice(0, 0, codes.numel()));
}

}  // namespace tanren
