#include "tanren/metrics/evaluation_metrics.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <string>

namespace tanren {
namespace {

TEST(EvaluationMetrics, refuses_an_unknown_name_and_says_what_there_is) {
  for (const std::string name : {"acuracy", "top", "top0", "top-1", "top5x", "f1"}) {
    try {
      const EvaluationMetrics metrics({name}, at::kCPU);
      ADD_FAILURE() << name << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("\"" + name + "\""), std::string::npos);
    }
  }
}

TEST(EvaluationMetrics, refuses_a_k_above_the_number_of_classes) {
  EvaluationMetrics metrics({"top4"}, at::kCPU);
  EXPECT_THROW(metrics.add(at::rand({2, 3}), at::zeros({2}, at::kLong)), ConfigError);
}

TEST(EvaluationMetrics, names_both_shapes_where_they_do_not_fit) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  try {
    metrics.add(at::rand({4, 3}), at::zeros({2}, at::kLong));
    FAIL() << "no error";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("[4, 3]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[2]"), std::string::npos) << error.what();
  }
  EXPECT_THROW(metrics.add(at::rand({4, 3}), at::rand({4})), RunError);
}

TEST(EvaluationMetrics, counts_a_row_with_nan_as_wrong) {
  EvaluationMetrics metrics({"accuracy", "top3"}, at::kCPU);
  const double nan = std::nan("");
  const auto outputs = at::tensor({nan, 0.0, 0.0, 0.0, nan, 9.0, 9.0, 0.0, 1.0}).view({3, 3});
  metrics.add(outputs, at::tensor({0, 2, 0}, at::kLong));
  const auto values = metrics.result();
  EXPECT_DOUBLE_EQ(values[0].second, 1.0 / 3);
  EXPECT_DOUBLE_EQ(values[1].second, 1.0 / 3);
}

TEST(EvaluationMetrics, is_nan_when_nothing_was_added) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  metrics.add(at::rand({0, 3}), at::zeros({0}, at::kLong));
  EXPECT_TRUE(std::isnan(metrics.result()[0].second));
}

TEST(EvaluationMetrics, breaks_ties_as_argmax_does) {
  EvaluationMetrics metrics({"accuracy", "top2"}, at::kCPU);
  metrics.add(at::zeros({3, 3}), at::tensor({0, 1, 2}, at::kLong));
  const auto values = metrics.result();
  EXPECT_DOUBLE_EQ(values[0].second, 1.0 / 3);
  EXPECT_DOUBLE_EQ(values[1].second, 2.0 / 3);
}

TEST(EvaluationMetrics, agrees_with_topk_whatever_the_batches_and_the_dtype) {
  at::manual_seed(3);
  const auto outputs = at::randn({101, 10}, at::kBFloat16);
  const auto targets = at::randint(10, {101}, at::kLong);
  const auto top3 = std::get<1>(outputs.to(at::kFloat).topk(3, 1));
  const double expected_1 = outputs.to(at::kFloat).argmax(1).eq(targets).sum().item<double>() / 101;
  const double expected_3 = top3.eq(targets.unsqueeze(1)).any(1).sum().item<double>() / 101;
  ASSERT_GT(expected_3, expected_1);
  for (const int64_t size : {101, 32, 7}) {
    EvaluationMetrics metrics({"accuracy", "top1", "top3"}, at::kCPU);
    for (int64_t begin = 0; begin < 101; begin += size) {
      const auto end = std::min<int64_t>(101, begin + size);
      metrics.add(outputs.slice(0, begin, end), targets.slice(0, begin, end));
    }
    const auto values = metrics.result();
    EXPECT_EQ(values[0], (std::pair<std::string, double>("accuracy", expected_1)));
    EXPECT_EQ(values[1].second, expected_1);
    EXPECT_NEAR(values[2].second, expected_3, 2.5 / 101);  // topk breaks bf16 ties its own way
  }
}

TEST(EvaluationMetrics, counts_every_position_of_a_target_with_more_dims) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  const auto targets = at::tensor({0, 1, 1, 0, 0, 1}, at::kLong).view({2, 3});
  auto outputs = at::zeros({2, 2, 3});
  outputs.select(1, 1).fill_(1);  // class 1 everywhere
  metrics.add(outputs, targets);
  EXPECT_DOUBLE_EQ(metrics.result()[0].second, 0.5);
}

TEST(EvaluationMetrics, judges_binary_targets_by_the_sign_of_the_output) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  metrics.add(at::tensor({-1.0, 2.0, 3.0, -4.0}), at::tensor({0.0, 1.0, 0.0, 0.0}));
  EXPECT_DOUBLE_EQ(metrics.result()[0].second, 0.75);
  EvaluationMetrics top({"top2"}, at::kCPU);
  EXPECT_THROW(top.add(at::rand({4, 1}), at::rand({4, 1})), ConfigError);
}

TEST(EvaluationMetrics, reads_the_device_once_at_the_end) {  // transformers#7232
  EvaluationMetrics metrics({"accuracy", "top2", "top3"}, at::kCPU);
  const int64_t before = num_device_reads();
  for (int i = 0; i < 5; ++i) metrics.add(at::rand({8, 4}), at::zeros({8}, at::kLong));
  EXPECT_EQ(num_device_reads(), before);
  metrics.result();
  EXPECT_EQ(num_device_reads(), before + 1);
}

TEST(EvaluationMetrics, keeps_no_graph_and_no_activation) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  auto outputs = at::rand({8, 4}).requires_grad_();
  auto scores = outputs * 2;
  metrics.add(scores, at::zeros({8}, at::kLong));
  EXPECT_EQ(scores.use_count(), 1u);
}

}  // namespace
}  // namespace tanren
