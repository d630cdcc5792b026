#include "tanren/base/random.h"

#include <gtest/gtest.h>

#include <thread>

#include <ATen/ATen.h>

namespace tanren {
namespace {

// Known answers of Random123 1.09 (kat_vectors, philox4x32 10).
TEST(Random, philox_gives_the_published_answers) {
  using Block = std::array<uint32_t, 4>;
  constexpr uint32_t ones = 0xffffffffu;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, seed_stream_and_index_each_change_the_bits) {
  const auto bits = random_bits(1, 2, 3);
  EXPECT_NE(bits, random_bits(2, 2, 3));
  EXPECT_NE(bits, random_bits(1, 3, 3));
  EXPECT_NE(bits, random_bits(1, 2, 4));
  EXPECT_NE(bits, random_bits(1 + (uint64_t{1} << 32), 2, 3));
  EXPECT_NE(bits, random_bits(1, 2 + (uint64_t{1} << 32), 3));
  EXPECT_NE(bits, random_bits(1, 2, 3 + (uint64_t{1} << 32)));
}

TEST(Random, there_is_no_scope_outside_one) {
  EXPECT_EQ(RandomScope::current(), nullptr);
  { const RandomScope scope(1, 2, at::arange(3)); }
  EXPECT_EQ(RandomScope::current(), nullptr);
}

TEST(Random, the_innermost_scope_of_this_thread_counts) {
  const RandomScope outer(1, 10, at::arange(3));
  {
    const RandomScope inner(2, 20, at::arange(1));
    EXPECT_EQ(RandomScope::current(), &inner);
    EXPECT_EQ(RandomScope::current()->seed(), 2);
    EXPECT_EQ(RandomScope::current()->attempt(), 20);
    const RandomScope* elsewhere = &inner;
    std::thread([&] { elsewhere = RandomScope::current(); }).join();
    EXPECT_EQ(elsewhere, nullptr);
  }
  EXPECT_EQ(RandomScope::current(), &outer);
  EXPECT_EQ(RandomScope::current()->ids().size(0), 3);
}

}  // namespace
}  // namespace tanren
