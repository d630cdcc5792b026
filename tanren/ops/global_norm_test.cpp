#include "tanren/ops/global_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

at::Tensor values(int64_t size, at::ScalarType dtype) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  return (at::randn({size}, generator, at::kDouble) * 1e-3).to(dtype);
}

TEST(GlobalNorm, is_that_of_doubles_however_many_elements_there_are) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t size : {1, 15, 1000, 1024, 65'537, 5'000'000}) {
      const at::Tensor given = values(size, dtype);
      const double exact = given.to(at::kDouble).norm().item<double>();
      const at::Tensor norm = global_norm({given});
      EXPECT_EQ(norm.scalar_type(), dtype == at::kDouble ? at::kDouble : at::kFloat);
      EXPECT_NEAR(norm.item<double>() / exact, 1, dtype == at::kDouble ? 1e-12 : 2e-7)
          << dtype << " " << size;
    }
  }
}

TEST(GlobalNorm, of_parts_measured_apart_is_that_of_the_whole) {
  const at::Tensor whole = values(3'000'001, at::kFloat);
  double squares = 0;
  for (const at::Tensor& part : whole.tensor_split(4)) {
    squares += std::pow(global_norm({part}).item<double>(), 2);
  }
  EXPECT_NEAR(std::sqrt(squares) / global_norm({whole}).item<double>(), 1, 2e-7);
}

TEST(GlobalNorm, does_not_depend_on_threads_or_strides) {
  const at::Tensor given = values(1'000'000, at::kFloat).view({1000, 1000});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = global_norm({given}).item<double>();
  at::set_num_threads(threads);
  EXPECT_EQ(global_norm({given}).item<double>(), one);
  EXPECT_EQ(global_norm({given.t()}).item<double>(), one);
  const at::Tensor half = given.slice(1, 0, 1000, 2);
  EXPECT_EQ(global_norm({half}).item<double>(), global_norm({half.contiguous()}).item<double>());
}

TEST(GlobalNorm, is_infinite_or_nan_where_an_element_is) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    at::Tensor given = values(70'000, at::kFloat);
    given[66'000] = bad;
    EXPECT_FALSE(std::isfinite(global_norm({values(5, at::kFloat), given}).item<double>()));
  }
}

TEST(GlobalNorm, of_floats_is_finite_as_long_as_it_fits_a_float) {
  const at::Tensor large = at::full({3, 3}, 1e30F);
  EXPECT_NEAR(global_norm({large, large.t()}).item<double>() / (std::sqrt(18.0) * 1e30), 1, 1e-6);
  const at::Tensor largest = at::full({4}, std::numeric_limits<float>::max());
  EXPECT_EQ(global_norm({largest}).item<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(exact_norm({largest}), 2.0 * std::numeric_limits<float>::max());
}

TEST(ExactNorm, of_any_dtype_is_finite_where_its_elements_are) {
  const at::Tensor given = values(70'007, at::kDouble);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor typed = given.to(dtype);
    const double expected = typed.to(at::kDouble).norm().item<double>();
    EXPECT_NEAR(exact_norm({typed}) / expected, 1, 1e-12) << dtype;
  }
  EXPECT_FALSE(std::isfinite(exact_norm({given, at::full({1}, std::nan(""), at::kDouble)})));
  EXPECT_EQ(exact_norm({}), 0);
}

}  // namespace
}  // namespace tanren
