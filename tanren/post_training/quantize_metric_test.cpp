#include "tanren/post_training/quantize_metric.h"

#include "tanren/post_training/paired_times.h"
#include "tanren/post_training/quantize_file.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::nullopt_t kNone = std::nullopt;

SchemeResult measured(const std::string& name, int64_t bytes, double seconds, bool is_within) {
  SchemeResult scheme;
  scheme.name = name;
  scheme.tensor_bytes = bytes;
  scheme.seconds_8 = Spread{seconds, seconds, seconds};
  scheme.is_within_tolerance = is_within;
  return scheme;
}

TEST(QuantizeMetric, differences_of_too_few_or_other_samples_have_no_interval) {
  EXPECT_FALSE(paired_difference({1}, {0}));
  EXPECT_FALSE(paired_difference({1, 0, 1}, {1, 0}));
  EXPECT_FALSE(paired_difference({1, kNone, kNone}, {1, 1, 0}));
  EXPECT_FALSE(paired_difference({}, {}));
}

// Differences 0, -1, 0, 0: mean -1/4, s² = (3 · 1/16 + 9/16) / 3 = 1/4, s / √4 = 1/4.
TEST(QuantizeMetric, the_interval_is_196_standard_errors_to_both_sides) {
  const auto difference = paired_difference({1, 0, kNone, 1, 1}, {1, 1, 1, 1, 1});
  ASSERT_TRUE(difference);
  EXPECT_DOUBLE_EQ(difference->mean, -0.25);
  EXPECT_NEAR(difference->lower, -0.25 - 1.959964 / 4, 1e-6);
  EXPECT_NEAR(difference->upper, -0.25 + 1.959964 / 4, 1e-6);
}

TEST(QuantizeMetric, a_sample_whose_result_is_nan_is_not_left_out_of_the_interval) {
  for (const double bad : {kNan, std::numeric_limits<double>::infinity()}) {
    const auto difference = paired_difference({1, bad, kNone, 1}, {1, 1, 1, 1});
    ASSERT_TRUE(difference);
    EXPECT_FALSE(std::isfinite(difference->mean));
    EXPECT_FALSE(std::isfinite(difference->lower) || std::isfinite(difference->upper));
  }
}

TEST(QuantizeMetric, is_what_ranks_checkpoints_else_like_accuracy_else_the_loss) {
  EvaluateOptions measured;
  measured.metrics = {"mse", "top3", "accuracy"};
  CheckpointOptions ranked;
  EXPECT_EQ(deciding_metric(ranked, measured).name, "top3");
  EXPECT_TRUE(deciding_metric(ranked, measured).in_points);
  ranked.best = 1;
  EXPECT_EQ(deciding_metric(ranked, measured).name, "loss");
  EXPECT_EQ(deciding_metric(ranked, measured).tolerance_unit(), "per cent");
  ranked.metric = "accuracy";
  EXPECT_EQ(deciding_metric(ranked, measured).name, "accuracy");
  EXPECT_EQ(deciding_metric(ranked, measured).tolerance_unit(), "points");
  measured.metrics = {"mse"};
  EXPECT_EQ(deciding_metric({}, measured).name, "loss");
  EXPECT_TRUE(deciding_metric({}, measured).lower_is_better);
}

TEST(QuantizeMetric, the_tolerance_is_in_points_of_a_share_and_per_cent_of_a_loss) {
  const QuantizeMetric accuracy{"accuracy", false, true}, loss;
  EXPECT_TRUE(is_within(accuracy, 0.5, 0.970, 0.965));
  EXPECT_FALSE(is_within(accuracy, 0.5, 0.970, 0.964));
  EXPECT_TRUE(is_within(accuracy, 0, 0.970, 0.980));
  EXPECT_TRUE(is_within(loss, 0.5, 2.0, 2.01));
  EXPECT_FALSE(is_within(loss, 0.5, 2.0, 2.011));
  EXPECT_TRUE(is_within(loss, 0, 0, 0));
  EXPECT_FALSE(is_within(loss, 100, 2.0, kNan));
  EXPECT_FALSE(is_within(accuracy, 100, kNan, 1));
}

TEST(QuantizeMetric, counts_each_sample_as_the_evaluation_does) {
  Batch batch;
  batch.ids = at::arange(4);
  Prediction prediction;
  // Right; wrong; a tie, which the lower class wins; no target.
  prediction.outputs = at::tensor({0.F, 2.F, 1.F, 0.F, 1.F, 1.F, 3.F, 4.F}).view({4, 2});
  prediction.targets = at::tensor({1, 1, 1, -100}, at::kLong);
  SampleValues values(QuantizeMetric{"accuracy", false, true});
  values.add(batch, prediction);
  ASSERT_EQ(values.values().size(), 4u);
  EXPECT_EQ(values.values()[0], 1);
  EXPECT_EQ(values.values()[1], 0);
  EXPECT_EQ(values.values()[2], 0);
  EXPECT_FALSE(values.values()[3]);

  SampleValues squares(QuantizeMetric{"mse"});
  prediction.targets = at::zeros({4, 2});
  squares.add(batch, prediction);
  EXPECT_EQ(squares.values(), (ValueBySample{2, 0.5, 1, 12.5}));
  EXPECT_EQ(squares.num_nan(), 0);

  // A NaN output is a wrong class, and makes an error NaN. Both are counted.
  prediction.outputs[1][0] = kNan;
  squares.add(batch, prediction);
  ASSERT_TRUE(squares.values()[5]);
  EXPECT_TRUE(std::isnan(*squares.values()[5]));
  EXPECT_EQ(squares.num_nan(), 1);
  prediction.targets = at::zeros({4}, at::kLong);
  values.add(batch, prediction);
  EXPECT_EQ(values.values()[5], 0);
  EXPECT_EQ(values.num_nan(), 1);

  // Scores of tokens, in parts that are not samples, give no sample its own value.
  prediction.outputs = at::zeros({6, 2});
  prediction.targets = at::zeros({6}, at::kLong);
  values.add(batch, prediction);
  EXPECT_TRUE(values.values().empty());
  SampleValues of_loss{QuantizeMetric()};
  of_loss.add(batch, prediction);
  EXPECT_TRUE(of_loss.values().empty());
}

TEST(CheapestScheme, has_the_fewest_bytes_in_the_tolerance_and_then_the_least_time) {
  std::vector<SchemeResult> schemes = {
      measured("fp32", 4000, 4, true), measured("bf16", 100, 0.1, true),
      measured("weights", 1000, 3, true), measured("dynamic", 2000, 1, true),
      measured("static", 1005, 2, true)};
  EXPECT_EQ(cheapest_scheme(schemes), 4u) << "five bytes of scales do not outweigh the time";
  schemes[4].is_within_tolerance = false;
  EXPECT_EQ(cheapest_scheme(schemes), 2u);
  schemes[2].not_measured = "it does not apply";
  EXPECT_EQ(cheapest_scheme(schemes), 3u);
  schemes[3].is_within_tolerance = false;
  EXPECT_FALSE(cheapest_scheme(schemes));
}

TEST(PairedTimes, are_medians_of_blocks_and_ratios_to_the_first_way) {
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  int64_t blocks = 0;
  const auto way = [&blocks](double seconds) {
    return [&blocks, seconds](int64_t repeats) {
      ++blocks;
      return seconds * static_cast<double>(repeats);
    };
  };
  const auto times = paired_times({way(1), way(0.25)});  // 2 seconds a block of both: 5 blocks
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].ratio.median, 1);
  EXPECT_EQ(times[1].ratio.median, 0.25);
  EXPECT_EQ(times[1].seconds.highest, 0.25);
  EXPECT_EQ(blocks, 2 * (2 + 5));
}

}  // namespace
}  // namespace tanren
