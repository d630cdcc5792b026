#include "tanren/metrics/picture_quality.h"

#include "tanren/base/error.h"
#include "tanren/comm/on_ranks_test_util.h"
#include "tanren/formats/safetensors.h"
#include "tanren/metrics/evaluation_metrics.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cmath>
#include <string>

namespace tanren {
namespace {

TensorMap quality_fixture() {
  return read_safetensors(std::filesystem::path(TANREN_SOURCE_DIR) /
                          "tests/fixtures/picture_quality.safetensors")
      .tensors;
}

std::string refused_pictures(const at::Tensor& outputs, const at::Tensor& targets) {
  PictureQuality quality(true);
  try {
    quality.add(outputs, targets);
  } catch (const RunError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(PictureQuality, refuses_what_are_no_pictures_and_pictures_below_the_window) {
  EXPECT_NE(refused_pictures(at::zeros({2, 3}), at::zeros({2, 3})).find("[2, 3]"),
            std::string::npos);
  EXPECT_NE(refused_pictures(at::zeros({2, 1, 8, 8}), at::zeros({2, 3, 8, 8})).find("one shape"),
            std::string::npos);
  EXPECT_NE(refused_pictures(at::zeros({2, 1, 6, 8}), at::zeros({2, 1, 6, 8})).find("6 × 8"),
            std::string::npos);
}

TEST(PictureQuality, is_that_of_scikit_image_at_any_split) {
  const auto fixture = quality_fixture();
  for (const std::string name : {"colour", "grey"}) {
    const auto &outputs = fixture.at(name + ".outputs"), &targets = fixture.at(name + ".targets");
    const auto expected = fixture.at(name + ".values").mean(0);
    for (const int64_t size : {1, 2, 5}) {
      EvaluationMetrics metrics({"ssim", "mse", "psnr"}, at::kCPU);
      for (int64_t i = 0; i < targets.size(0); i += size) {
        const int64_t count = std::min(size, targets.size(0) - i);
        metrics.add(outputs.narrow(0, i, count), targets.narrow(0, i, count));
      }
      const auto values = metrics.result().values;
      EXPECT_NEAR(values[0].second, expected[1].item<double>(), 1e-7) << name;
      EXPECT_NEAR(values[1].second, (outputs - targets).square().mean().item<double>(), 1e-6);
      EXPECT_NEAR(values[2].second, expected[0].item<double>(), 1e-7) << name;
    }
  }
}

TEST(PictureQuality, of_equal_pictures_is_infinite_and_1_and_of_nothing_nan) {
  EvaluationMetrics metrics({"psnr", "ssim"}, at::kCPU);
  EXPECT_TRUE(std::isnan(metrics.result().values[0].second));
  const auto pictures = at::rand({2, 3, 9, 9});
  metrics.add(pictures, pictures);
  EXPECT_TRUE(std::isinf(metrics.result().values[0].second));
  EXPECT_NEAR(metrics.result().values[1].second, 1, 1e-12);
}

TEST(PictureQuality, of_ranks_is_that_of_one_also_where_a_rank_has_none) {
  const auto fixture = quality_fixture();
  const auto &outputs = fixture.at("colour.outputs"), &targets = fixture.at("colour.targets");
  const auto expected = fixture.at("colour.values").mean(0);
  testing::on_ranks(3, [&](Communicator& ranks) {
    EvaluationMetrics metrics({"psnr", "ssim"}, at::kCPU);
    const int64_t begin = ranks.rank() == 0 ? 0 : 2, end = ranks.rank() == 0 ? 2 : 5;
    if (ranks.rank() < 2) metrics.add(outputs.slice(0, begin, end), targets.slice(0, begin, end));
    metrics.join_over(ranks);
    const auto values = metrics.result().values;
    EXPECT_NEAR(values[0].second, expected[0].item<double>(), 1e-7);
    EXPECT_NEAR(values[1].second, expected[1].item<double>(), 1e-7);
  });
}

}  // namespace
}  // namespace tanren
