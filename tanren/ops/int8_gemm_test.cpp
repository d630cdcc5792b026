#include "tanren/ops/int8_gemm.h"

#include "tanren/ops/int8_gemm_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace tanren {
namespace {

using Int8Multiply = void (*)(const Int8Shape&, const uint8_t*, const int8_t*, int32_t*, bool);

// The plain loop over unpacked factors: a m × k, b n × k.
int64_t dot(const uint8_t* a, const int8_t* b, int64_t k) {
  int64_t sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += int64_t{a[i]} * int64_t{b[i]};
  return sum;
}

struct Int8Case {
  int64_t m, n, k;
  int64_t start;  // what c holds before; if above 0, the product is added
};

// `extreme`: all values are the largest or the smallest.
void expect_exact(Int8Multiply multiply, const Int8Case& one, bool extreme, std::mt19937& random) {
  const int64_t depth = (one.k + 3) / 4 * 4, row = one.n + static_cast<int64_t>(random() % 20);
  const int64_t a_stride = depth + static_cast<int64_t>(random() % 8), c_stride = one.n + 3;
  std::vector<uint8_t> a(static_cast<size_t>(one.m * a_stride));
  std::vector<int8_t> b(static_cast<size_t>(one.n * one.k));
  for (auto& value : a) value = static_cast<uint8_t>(extreme ? random() % 8 ? 255 : 0 : random());
  for (auto& value : b) {
    value = static_cast<int8_t>(extreme ? (random() % 8 ? -128 : 127) : random());
  }
  std::vector<int8_t> packed(static_cast<size_t>(depth * row), 99);
  pack_int8_columns(b.data(), one.k, one.n, one.k, row, packed.data());
  const auto start = static_cast<int32_t>(one.start);
  std::vector<int32_t> c(static_cast<size_t>(one.m * c_stride), start);
  multiply({one.m, one.n, depth, a_stride, row, c_stride}, a.data(), packed.data(), c.data(),
           start != 0);
  for (int64_t r = 0; r < one.m; ++r) {
    for (int64_t column = 0; column < c_stride; ++column) {
      const int64_t sum =
          column < one.n ? dot(a.data() + r * a_stride, b.data() + column * one.k, one.k) : 0;
      ASSERT_EQ(c[static_cast<size_t>(r * c_stride + column)], one.start + sum)
          << one.m << " × " << one.n << " × " << one.k << " at " << r << ", " << column;
    }
  }
}

std::vector<Int8Multiply> ways() {
  std::vector<Int8Multiply> all = {int8_gemm, int8_gemm_plain};
  if (has_int8_avx2()) all.push_back(int8_gemm_avx2);
  return all;
}

TEST(Int8Gemm, is_the_loop_over_whole_numbers_for_1000_shapes) {
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    const auto below = [&](uint32_t end) { return 1 + static_cast<int64_t>(random() % end); };
    const Int8Case one{below(i % 10 == 0 ? 70 : 12), below(70), below(i % 7 == 0 ? 700 : 90),
                       i % 3 == 0 ? 11 : 0};
    for (const Int8Multiply multiply : ways()) {
      ASSERT_NO_FATAL_FAILURE(expect_exact(multiply, one, i % 4 == 1, random));
    }
  }
  end_int8_gemm();
}

TEST(Int8Gemm, has_a_name_for_what_computes_it) {
  EXPECT_EQ(int8_kernel_text(Int8Kernel::onednn, true), "AMX");
  EXPECT_EQ(int8_kernel_text(Int8Kernel::onednn, false), "VNNI");
  // The processor has AMX, but the probe found wrong numbers from oneDNN.
  EXPECT_EQ(int8_kernel_text(Int8Kernel::avx2, true), "AVX2 alone: plain integer loops");
  EXPECT_EQ(int8_kernel_text(Int8Kernel::plain, false).substr(0, 7), "neither");
}

TEST(Int8Gemm, holds_the_longest_sums_of_the_largest_values) {
  std::mt19937 random(8);
  for (const Int8Multiply multiply : ways()) {
    ASSERT_NO_FATAL_FAILURE(expect_exact(multiply, {5, 17, kMaxInt8Depth, 0}, true, random));
  }
  static_assert(int64_t{255} * 128 * kMaxInt8Depth <= INT32_MAX);
  end_int8_gemm();
}

}  // namespace
}  // namespace tanren
