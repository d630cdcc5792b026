#include "tanren/precision/measure.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Measure, one_bad_element_anywhere_makes_the_norm_non_finite_in_every_dtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const float bad : {kInf, -kInf, kNan}) {
      auto gradient = at::randn({1000}).to(dtype);
      gradient[777] = bad;
      const auto measured = unscale_and_measure({gradient}, 65536);
      EXPECT_FALSE(std::isfinite(measured.norm.item<double>())) << bad;
    }
  }
}

TEST(Measure, unscaling_by_a_power_of_two_is_exact_and_in_place) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto original = at::randn({4096}).to(dtype);
    auto gradient = original * 65536;
    const auto measured = unscale_and_measure({gradient}, 65536);
    EXPECT_TRUE(at::equal(gradient, original));
    EXPECT_NEAR(measured.norm.item<double>(), original.norm().item<double>(), 1e-3);
  }
}

TEST(Measure, without_a_scale_gradients_are_not_touched) {
  const auto gradient = at::randn({64});
  const auto before = gradient.clone();
  unscale_and_measure({gradient}, 1.0);
  EXPECT_TRUE(at::equal(gradient, before));
}

TEST(Measure, several_buffers_give_one_norm) {
  const auto a = at::full({9}, 1.0), b = at::full({16}, 1.0);
  EXPECT_NEAR(unscale_and_measure({a, b}, 1.0).norm.item<double>(), 5.0, 1e-6);
}

TEST(Measure, squares_that_do_not_fit_fp32_make_no_norm_infinite) {
  EXPECT_NEAR(unscale_and_measure({at::full({4}, 1e30F)}, 1.0).norm.item<double>(), 2e30, 1e24);
}

TEST(Measure, of_ranges_are_sums_and_counts_over_these_alone) {
  const auto flat = at::tensor({1e-9F, 2.0F, 1e-9F, 3.0F, 1e5F, 1e5F}) * 4, same = flat.clone();
  const auto ranges =
      unscale_and_measure({flat}, {{0, 3, 2}, {}, {0, 1, 2}}, at::kCPU, 4, /*report_flush=*/true);
  unscale_and_measure({same}, 4);
  EXPECT_EQ(ranges.squares.on_host[0], 9 + 1e10);
  EXPECT_EQ(ranges.squares.on_host[1], 0);
  EXPECT_NEAR(ranges.squares.on_host[2], 4, 1e-12);
  EXPECT_TRUE(at::equal(flat, same)) << "all are unscaled";
  EXPECT_EQ(ranges.flushed.item<double>(), 1);
  EXPECT_EQ(ranges.overflown.item<double>(), 1);
}

TEST(Measure, of_no_gradient_is_0) {
  const auto ranges = unscale_and_measure({}, {{}, {}}, at::kCPU, 4, /*report_flush=*/true);
  EXPECT_EQ(ranges.squares.on_host, (std::vector<double>{0, 0}));
  EXPECT_EQ(ranges.flushed.item<double>(), 0);
  EXPECT_EQ(ranges.overflown.item<double>(), 0);
  const auto elsewhere = unscale_and_measure({}, {{}}, at::kMeta, 4, /*report_flush=*/true);
  EXPECT_TRUE(elsewhere.squares.on_device.is_meta());
  EXPECT_TRUE(elsewhere.flushed.is_meta());
  const auto whole = unscale_and_measure({}, 4, /*report_flush=*/true);
  EXPECT_EQ(whole.norm.item<double>(), 0);
  EXPECT_EQ(whole.flush_share.item<double>(), 0);
  EXPECT_EQ(whole.overflow_share.item<double>(), 0);
}

TEST(Measure, reports_what_fp16_would_flush_and_overflow_at_this_scale) {
  auto gradient = at::tensor({1e-9f, 0.0f, 1.0f, 1e5f});
  const auto measured = unscale_and_measure({gradient}, 1.0, /*report_flush=*/true);
  EXPECT_DOUBLE_EQ(measured.flush_share.item<double>(), 0.25);
  EXPECT_DOUBLE_EQ(measured.overflow_share.item<double>(), 0.25);
  auto scaled = at::tensor({1e-9f, 0.0f, 1.0f, 1e-5f}) * 4096;
  EXPECT_DOUBLE_EQ(unscale_and_measure({scaled}, 4096, true).flush_share.item<double>(), 0.0);
}

}  // namespace
}  // namespace tanren
