#include "tanren/ops/rows.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

TEST(Rows, exp_is_within_a_few_units_of_the_last_place) {
  const at::Tensor x = at::linspace(-87, 80, 20011);
  at::Tensor out = at::empty_like(x);
  exp_row(x.const_data_ptr<float>(), 1, 0, x.numel(), out.mutable_data_ptr<float>());
  const at::Tensor exact = x.to(at::kDouble).exp();
  EXPECT_LT(((out.to(at::kDouble) - exact) / exact).abs().max().item<double>(), 3e-7);
}

TEST(Rows, exp_of_far_below_is_zero_and_of_nan_is_nan) {
  const float values[] = {-88, -1e30f, -std::numeric_limits<float>::infinity(), std::nanf(""), 0};
  float out[5];
  exp_row(values, 1, 0, 5, out);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], 0);
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[4], 1);
}

TEST(Rows, store_and_load_round_as_torch) {
  at::Tensor x = at::randn({1003}) * at::randn({1003}).mul(20).exp();
  x[5] = std::nan("");
  x[6] = INFINITY;
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor expected = x.to(type);
    at::Tensor stored = at::empty_like(expected), loaded = at::empty_like(x);
    const auto check = [&](auto* memory) {
      store_row(x.const_data_ptr<float>(), 1, x.numel(), memory);
      load_row(memory, x.numel(), loaded.mutable_data_ptr<float>());
    };
    if (type == at::kHalf) check(stored.mutable_data_ptr<at::Half>());
    if (type == at::kBFloat16) check(stored.mutable_data_ptr<at::BFloat16>());
    EXPECT_TRUE(at::allclose(stored.to(at::kFloat), expected.to(at::kFloat), 0, 0, true));
    EXPECT_TRUE(at::allclose(loaded, expected.to(at::kFloat), 0, 0, true));
  }
}

}  // namespace
}  // namespace tanren
