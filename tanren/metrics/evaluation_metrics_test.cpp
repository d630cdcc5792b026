#include "tanren/metrics/evaluation_metrics.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tanren/metrics/score_rows.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <algorithm>
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
  const auto values = metrics.result().values;
  EXPECT_DOUBLE_EQ(values[0].second, 1.0 / 3);
  EXPECT_DOUBLE_EQ(values[1].second, 1.0 / 3);
}

TEST(EvaluationMetrics, is_nan_when_nothing_was_added) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  metrics.add(at::rand({0, 3}), at::zeros({0}, at::kLong));
  EXPECT_TRUE(std::isnan(metrics.result().values[0].second));
}

TEST(EvaluationMetrics, breaks_ties_as_argmax_does) {
  EvaluationMetrics metrics({"accuracy", "top2"}, at::kCPU);
  metrics.add(at::zeros({3, 3}), at::tensor({0, 1, 2}, at::kLong));
  const auto values = metrics.result().values;
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
    const auto values = metrics.result().values;
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
  EXPECT_DOUBLE_EQ(metrics.result().values[0].second, 0.5);
}

TEST(EvaluationMetrics, judges_binary_targets_by_the_sign_of_the_output) {
  EvaluationMetrics metrics({"accuracy"}, at::kCPU);
  metrics.add(at::tensor({-1.0, 2.0, 3.0, -4.0}), at::tensor({0.0, 1.0, 0.0, 0.0}));
  EXPECT_DOUBLE_EQ(metrics.result().values[0].second, 0.75);
  EvaluationMetrics top({"top2"}, at::kCPU);
  EXPECT_THROW(top.add(at::rand({4, 1}), at::rand({4, 1})), ConfigError);
}

TEST(EvaluationMetrics, refuses_metrics_of_values_on_classes_and_perplexity_without_its_term) {
  EvaluationMetrics errors({"r2"}, at::kCPU);
  EXPECT_THROW(errors.add(at::rand({4, 3}), at::zeros({4}, at::kLong)), ConfigError);
  const EvaluationMetrics perplexity({"perplexity"}, at::kCPU);
  EXPECT_THROW(perplexity.result({{"mse", 1.0}}), ConfigError);
  EvaluationMetrics binary({"f1_binary"}, at::kCPU);
  EXPECT_THROW(binary.add(at::rand({4, 3}), at::zeros({4}, at::kLong)), ConfigError);
}

TEST(EvaluationMetrics, leaves_out_targets_of_minus_100) {
  EvaluationMetrics with({"accuracy", "top2", "f1_macro", "auroc", "confusion_matrix"}, at::kCPU);
  EvaluationMetrics without({"accuracy", "top2", "f1_macro", "auroc", "confusion_matrix"},
                            at::kCPU);
  at::manual_seed(1);
  const auto outputs = at::randn({5, 4, 7});  // [n, classes, positions]
  auto targets = at::randint(4, {5, 7}, at::kLong);
  const auto ignored = at::rand({5, 7}).lt(0.4);
  const auto rows = outputs.transpose(1, 2).reshape({-1, 4});
  const auto kept = ignored.reshape(-1).logical_not();
  without.add(rows.index({kept}), targets.reshape(-1).index({kept}));
  with.add(outputs, targets.masked_fill(ignored, -100));
  const auto a = with.result(), b = without.result();
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.confusion_matrix, b.confusion_matrix);
  EvaluationMetrics none({"accuracy", "f1_micro"}, at::kCPU);
  none.add(outputs, at::full({5, 7}, -100, at::kLong));
  EXPECT_TRUE(std::isnan(none.result().values[0].second));
  EXPECT_TRUE(std::isnan(none.result().values[1].second));
}

// The fixture's predictions in batches of `size`.
EvaluationReport measured(const TensorMap& fixture, const std::string& name,
                          const std::vector<std::string>& metrics, int64_t size) {
  EvaluationMetrics all(metrics, at::kCPU);
  const bool values = name == "values";
  const auto outputs = fixture.at(name + (values ? ".outputs" : ".scores"));
  const auto targets = fixture.at(name + (values ? ".targets" : ".labels"));
  for (int64_t i = 0; i < outputs.size(0); i += size) {
    const auto end = std::min(i + size, outputs.size(0));
    all.add(outputs.slice(0, i, end), targets.slice(0, i, end));
  }
  return all.result();
}

void expect_values(const EvaluationReport& report, const at::Tensor& expected) {
  ASSERT_EQ(static_cast<int64_t>(report.values.size()), expected.numel());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    EXPECT_NEAR(report.values[i].second, expected.view(-1)[i].item<double>(), 1e-12)
        << report.values[i].first;
  }
}

TEST(EvaluationMetrics, agree_with_scikit_learn_whatever_the_batches) {
  const auto fixture =
      read_safetensors(std::string(TANREN_SOURCE_DIR) + "/tests/fixtures/metrics.safetensors")
          .tensors;
  const std::vector<std::string> averaged = {"precision_macro", "precision_micro", "recall_macro",
                                             "recall_micro",    "f1_macro",        "f1_micro"};
  for (const int64_t size : {1000, 37, 1}) {
    expect_values(measured(fixture, "many", averaged, size), fixture.at("many.averaged"));
    expect_values(measured(fixture, "rare", averaged, size), fixture.at("rare.averaged"));
    expect_values(measured(fixture, "two",
                           {"precision_binary", "precision_macro", "recall_binary", "recall_macro",
                            "f1_binary", "f1_macro"},
                           size),
                  fixture.at("two.averaged"));
    expect_values(measured(fixture, "two", {"auroc"}, size), fixture.at("two.auroc"));
    expect_values(measured(fixture, "values", {"mse", "mae", "r2"}, size),
                  fixture.at("values.errors"));
    const auto report =
        measured(fixture, "many", {"auroc", "accuracy", "top2", "confusion_matrix"}, size);
    ASSERT_EQ(report.values.size(), 3u);  // a matrix is no number
    EXPECT_NEAR(report.values[0].second, fixture.at("many.auroc").item<double>(), 1e-12);
    EXPECT_EQ(report.auroc_error, 0);
    EXPECT_NEAR(report.values[1].second, fixture.at("many.accuracy").item<double>(), 1e-12);
    EXPECT_NEAR(report.values[2].second, fixture.at("many.top2").item<double>(), 1e-12);
    const auto matrix = at::tensor(report.confusion_matrix, at::kLong).view({6, 6});
    EXPECT_TRUE(at::equal(matrix, fixture.at("many.confusion_matrix")));
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(*report.classes[i].auroc, fixture.at("many.auroc_per_class")[i].item<double>(),
                  1e-12);
    }
  }
}

TEST(EvaluationMetrics, r2_of_targets_that_never_differ_is_1_or_0_and_of_one_sample_nan) {
  const auto r2 = [](const at::Tensor& outputs, const at::Tensor& targets) {
    EvaluationMetrics metrics({"r2"}, at::kCPU);
    metrics.add(outputs, targets);
    return metrics.result().values[0].second;
  };
  EXPECT_EQ(r2(at::full({4, 1}, 3.0), at::full({4}, 3.0)), 1);
  EXPECT_EQ(r2(at::full({4}, 2.0), at::full({4}, 3.0)), 0);
  EXPECT_TRUE(std::isnan(r2(at::ones({1}), at::ones({1}))));
  // A mean of 1e8 loses no precision.
  const auto targets = at::arange(1000, at::kDouble);
  const auto outputs = targets + at::arange(1000, at::kDouble).remainder(7);
  EXPECT_NEAR(r2(outputs + 1e8, targets + 1e8), r2(outputs, targets), 1e-9);
}

TEST(EvaluationMetrics, perplexity_is_exp_of_the_cross_entropy_per_token) {
  const EvaluationMetrics metrics({"perplexity"}, at::kCPU);
  EXPECT_DOUBLE_EQ(metrics.result({{"cross_entropy", 2.0}}).values[0].second, std::exp(2.0));
}

TEST(EvaluationMetrics, of_a_text_are_the_same_sum_over_its_bytes_and_words) {
  const EvaluationMetrics metrics(
      {"perplexity", "byte_perplexity", "bits_per_byte", "word_perplexity"}, at::kCPU);
  // 10 tokens of 3 nats each, which are 40 bytes and 5 words.
  const Counts counts{{"tokens", 10}, {"bytes", 40}, {"words", 5}, {"samples", 2}};
  const auto values = metrics.result({{"cross_entropy", 3.0}}, counts).values;
  EXPECT_DOUBLE_EQ(values[0].second, std::exp(3.0));
  EXPECT_DOUBLE_EQ(values[1].second, std::exp(0.75));
  EXPECT_DOUBLE_EQ(values[2].second, 0.75 / std::log(2.0));
  EXPECT_DOUBLE_EQ(values[3].second, std::exp(6.0));
  const EvaluationMetrics bits({"bits_per_byte"}, at::kCPU);
  TANREN_EXPECT_CONTAINS(
      testing::error_of<ConfigError>([&] {
        bits.result({{"cross_entropy", 3.0}}, {{"tokens", 10}});
      }),
      "bits_per_byte needs the bytes of the text, which these data do not count");
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([&] {
                           bits.result({{"mse", 1.0}}, counts);
                         }),
                         "bits_per_byte needs a term named cross_entropy");
  const Counts empty{{"tokens", 1}, {"bytes", 0}, {"words", 0}};
  EXPECT_TRUE(std::isnan(bits.result({{"cross_entropy", 3.0}}, empty).values[0].second));
}

TEST(EvaluationMetrics, of_a_large_vocabulary_need_little_memory_beside_the_scores) {
  // 4 × 20000 × 64 scores are 20 MB; what is computed from them at once stays below 10 MB.
  at::manual_seed(2);
  const auto outputs = at::randn({4, 64, 20000}).transpose(1, 2);
  const auto targets = at::randint(20000, {4, 64}, at::kLong);
  int64_t largest = 0;
  for_rows(outputs, targets, [&](const at::Tensor& rows, const at::Tensor&) {
    largest = std::max(largest, rows.numel());
  });
  EXPECT_LE(largest, kPieceElements);
  EvaluationMetrics metrics({"accuracy", "top5", "f1_macro"}, at::kCPU);
  metrics.add(outputs, targets);
  const auto rows = outputs.transpose(1, 2).reshape({-1, 20000});
  const auto labels = targets.reshape(-1);
  const auto top = std::get<1>(rows.topk(5, 1)).eq(labels.unsqueeze(1)).any(1);
  const auto values = metrics.result().values;
  EXPECT_DOUBLE_EQ(values[0].second,
                   rows.argmax(1).eq(labels).to(at::kDouble).mean().item<double>());
  EXPECT_DOUBLE_EQ(values[1].second, top.to(at::kDouble).mean().item<double>());
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
