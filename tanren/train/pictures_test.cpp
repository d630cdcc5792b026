#include "tanren/train/pictures.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <limits>

namespace tanren {
namespace {

TEST(Pictures, outputs_of_another_shape_are_refused_with_it) {
  for (const auto& outputs : {at::zeros({4, 3}), at::zeros({4, 2, 8, 8}), at::zeros({3, 8, 8}),
                              at::zeros({4, 3, 8, 8}, at::kLong)}) {
    EXPECT_THROW(check_are_pictures(outputs, outputs.dim() > 0 ? outputs.size(0) : 1, "drop it"),
                 ConfigError);
  }
  check_are_pictures(at::zeros({4, 1, 8, 8}), 4, "");
  EXPECT_THROW(check_are_pictures(at::zeros({4, 1, 8, 8}), 2, ""), ConfigError);
  check_are_pictures(at::zeros({4, 3, 8, 8}, at::kBFloat16), 4, "");
}

TEST(Pictures, the_range_becomes_whole_levels_and_what_is_beyond_is_cut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto grey = at::tensor({-1.0, 1.0, 0.0, -7.0, 7.0, nan}).view({1, 1, 2, 3});
  const auto rgb = rgb_of(grey);
  ASSERT_EQ(rgb.sizes(), (std::vector<int64_t>{1, 2, 3, 3}));
  const auto expected = at::tensor({0, 255, 128, 0, 255, 0}, at::kByte).view({1, 2, 3, 1});
  EXPECT_TRUE(at::equal(rgb, expected.expand({1, 2, 3, 3})));
  const auto colours = at::tensor({-1.0, 0.0, 1.0}).view({1, 3, 1, 1});
  EXPECT_TRUE(at::equal(rgb_of(colours).flatten(), at::tensor({0, 128, 255}, at::kByte)));
}

}  // namespace
}  // namespace tanren
