#include "tanren/ops/eight_bit.h"

#include "tanren/ops/memory_order.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tanren {
namespace {

TEST(EightBit, codes_are_256_values_and_the_nearest_is_found) {
  for (const bool is_signed : {true, false}) {
    const EightBitBook& book = eight_bit_book(is_signed);
    EXPECT_EQ(std::set<float>(book.values.begin(), book.values.end()).size(), 256u);
    EXPECT_EQ(book.values.back(), 1.0F);
    EXPECT_EQ(book.values[book.code(0)], 0.0F);
    for (int i = 0; i < 4000; ++i) {
      const double magnitude = std::exp(-20.0 * ((i * 2654435761U) % 100000) / 100000.0);
      const auto value = static_cast<float>(is_signed && i % 2 == 1 ? -magnitude : magnitude);
      const float found = book.values[book.code(value)];
      float best = book.values[0];
      for (const float other : book.values) {
        if (std::abs(other - value) < std::abs(best - value)) best = other;
      }
      // A square above 0 never becomes 0 (issue 21).
      if (!is_signed && best == 0) best = book.values[1];
      EXPECT_FLOAT_EQ(std::abs(found - value), std::abs(best - value)) << value;
    }
  }
}

TEST(EightBit, blocks_are_of_memory_and_come_back_near) {
  at::manual_seed(5);
  for (const bool is_signed : {true, false}) {
    const at::Tensor drawn = at::randn({7, 5, 3, 3});
    const at::Tensor values = is_signed ? drawn : drawn.square();
    const at::Tensor last = values.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor codes = at::empty_like(last, at::kByte), scales = at::empty({3});
    to_eight_bit(in_memory(last), is_signed, 128, codes, scales);
    const at::Tensor back = from_eight_bit(codes, scales, is_signed, 128);
    EXPECT_LT(((back - in_memory(last)).norm() / last.norm()).item<double>(), 0.02);
    EXPECT_EQ(scales[2].item<float>(), in_memory(last).slice(0, 256).abs().max().item<float>());
  }
}

}  // namespace
}  // namespace tanren
