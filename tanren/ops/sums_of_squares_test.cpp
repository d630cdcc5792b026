#include "tanren/ops/sums_of_squares.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

using Sums = std::vector<double>;

at::Tensor normal_numbers(int64_t size, at::ScalarType dtype) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  return (at::randn({size}, generator, at::kDouble) * 1e-3).to(dtype);
}

TEST(SumsOfSquares, are_those_of_doubles_for_any_size_and_dtype) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t size : {1, 2, 15, 16, 33, 65'536, 65'537, 1'000'003}) {
      const at::Tensor given = normal_numbers(size + 3, dtype);
      const double exact = given.narrow(0, 3, size).to(at::kDouble).square().sum().item<double>();
      const Sums sums =
          sums_of_squares({given}, {{.tensor = 0, .begin = 3, .size = size}}, at::kCPU).on_host;
      ASSERT_EQ(sums.size(), 1U);
      EXPECT_NEAR(sums[0] / exact, 1, 1e-13) << dtype << " " << size;
    }
  }
}

// The same three parameters in one buffer, and in two in another order.
TEST(SumsOfSquares, depend_on_neither_places_nor_other_ranges_nor_threads) {
  const int64_t a = 200'001, b = 7, c = 70'000;
  const at::Tensor flat = normal_numbers(a + b + c, at::kFloat);
  const at::Tensor first =
      at::cat({flat.narrow(0, a + b, c), at::zeros({5}), flat.narrow(0, 0, a)});
  const at::Tensor second = flat.narrow(0, a, b).clone();
  const int threads = at::get_num_threads();
  std::vector<Sums> all;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    all.push_back(sums_of_squares({flat}, {{0, 0, a}, {0, a, b}, {0, a + b, c}}, at::kCPU).on_host);
    const Sums other =
        sums_of_squares({first, second}, {{0, 0, c}, {0, c + 5, a}, {1, 0, b}}, at::kCPU).on_host;
    all.push_back({other[1], other[2], other[0]});
    all.push_back({sums_of_squares({flat}, {{0, 0, a}}, at::kCPU).on_host[0],
                   sums_of_squares({second}, {{0, 0, b}}, at::kCPU).on_host[0],
                   sums_of_squares({first}, {{0, 0, c}}, at::kCPU).on_host[0]});
  }
  at::set_num_threads(threads);
  for (const Sums& sums : all) EXPECT_EQ(sums, all[0]);
}

TEST(SumsOfSquares, of_nothing_are_0) {
  EXPECT_EQ(sums_of_squares({}, {{}, {}}, at::kCPU).on_host, (Sums{0, 0}));
  const SumsOfSquares elsewhere = sums_of_squares({}, {{}, {}}, at::kMeta);
  EXPECT_TRUE(elsewhere.on_host.empty());
  EXPECT_TRUE(elsewhere.on_device.is_meta()) << "ranks add it to others of the device";
  EXPECT_EQ(elsewhere.on_device.numel(), 2);
  const at::Tensor three = at::full({4}, 3.0);
  EXPECT_EQ(sums_of_squares({three}, {{.tensor = 9}, {0, 1, 2}, {}}, at::kCPU).on_host,
            (Sums{0, 18, 0}));
  EXPECT_TRUE(sums_of_squares({three}, {}, at::kCPU).on_host.empty());
}

TEST(SumsOfSquares, of_floats_always_fit_and_of_doubles_up_to_1e154) {
  const double large = std::numeric_limits<float>::max();
  const double tiny = std::numeric_limits<float>::denorm_min();
  const at::Tensor floats = at::tensor({large, large, tiny}, at::kFloat);
  EXPECT_EQ(sums_of_squares({floats}, {{0, 0, 2}, {0, 2, 1}}, at::kCPU).on_host,
            (Sums{2 * large * large, tiny * tiny}));
  const at::Tensor doubles = at::tensor({1e150, 1e160}, at::kDouble);
  EXPECT_EQ(sums_of_squares({doubles}, {{0, 0, 1}, {0, 1, 1}}, at::kCPU).on_host,
            (Sums{1e150 * 1e150, std::numeric_limits<double>::infinity()}));
}

TEST(SumsOfSquares, are_not_finite_where_an_element_is_not_and_nowhere_else) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      for (const int64_t place : {100, 66'000, 70'099}) {
        at::Tensor given = normal_numbers(70'200, dtype);
        given[place] = bad;
        const Sums sums =
            sums_of_squares({given}, {{0, 0, 100}, {0, 100, 70'000}, {0, 70'100, 100}}, at::kCPU)
                .on_host;
        EXPECT_TRUE(std::isfinite(sums[0]) && std::isfinite(sums[2])) << dtype << " " << place;
        EXPECT_FALSE(std::isfinite(sums[1])) << dtype << " " << place;
      }
    }
  }
}

}  // namespace
}  // namespace tanren
