#include "tanren/optimizer/clip.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

TEST(Clip, a_non_finite_norm_reaches_every_gradient) {
  std::vector<at::Tensor> gradients = {at::ones({3}), at::full({2}, std::nanf(""))};
  EXPECT_TRUE(clip_norm_(gradients, 1.0).isnan().item<bool>());
  EXPECT_TRUE(gradients[0].isnan().all().item<bool>());
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1.0)));
}

TEST(Clip, an_empty_list_has_norm_zero) {
  EXPECT_EQ(clip_norm_({}, 1.0).item<double>(), 0);
  EXPECT_EQ(global_norm({}).item<double>(), 0);
}

TEST(Clip, small_gradients_stay_bitwise) {
  const at::Tensor gradient = at::randn({5, 3});
  std::vector<at::Tensor> gradients = {gradient.clone()};
  clip_norm_(gradients, 1000.0);
  EXPECT_TRUE(at::equal(gradients[0], gradient));
}

TEST(Clip, large_gradients_come_down_to_the_norm_and_the_norm_before_is_returned) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> gradients = {at::full({9}, 4.0, dtype), at::full({4, 4}, 4.0, dtype)};
    const double norm = clip_norm_(gradients, 2.0).item<double>();
    EXPECT_DOUBLE_EQ(norm, 20.0);
    EXPECT_NEAR(global_norm(gradients).item<double>(), 2.0, 1e-6);
    EXPECT_NEAR(gradients[0][0].item<double>(), 4.0 * clip_factor(norm, 2.0), 1e-7);
  }
}

TEST(Clip, bf16_gradients_are_measured_in_fp32) {
  const std::vector<at::Tensor> gradients = {at::full({1000}, 1.0, at::kBFloat16),
                                             at::full({5}, 1.0, at::kBFloat16)};
  const at::Tensor norm = global_norm(gradients);
  EXPECT_EQ(norm.scalar_type(), at::kFloat);
  EXPECT_NEAR(norm.item<double>(), std::sqrt(1005.0), 1e-4);
}

TEST(Clip, by_value_bounds_every_element_and_keeps_nan) {
  std::vector<at::Tensor> gradients = {at::tensor({-3.0f, 0.5f, 2.0f}),
                                       at::tensor({std::nanf(""), 0.25f})};
  clip_value_(gradients, 1.0);
  EXPECT_TRUE(at::equal(gradients[0], at::tensor({-1.0f, 0.5f, 1.0f})));
  EXPECT_TRUE(gradients[1].isnan()[0].item<bool>());
  EXPECT_EQ(gradients[1][1].item<float>(), 0.25f);
  clip_value_({}, 1.0);
}

}  // namespace
}  // namespace tanren
