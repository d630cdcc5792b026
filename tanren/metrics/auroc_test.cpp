#include "tanren/metrics/auroc.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cmath>

namespace tanren {
namespace {

Auroc::Result auroc_of(const at::Tensor& scores, const at::Tensor& labels, int64_t exact,
                       int64_t batch) {
  Auroc auroc(scores.size(1), at::kCPU, exact);
  for (int64_t i = 0; i < scores.size(0); i += batch) {
    const auto end = std::min(i + batch, scores.size(0));
    auroc.add(scores.slice(0, i, end), labels.slice(0, i, end));
  }
  const auto values = auroc.values().contiguous();
  return auroc.result(values.const_data_ptr<double>());
}

TEST(Auroc, is_nan_for_a_class_without_targets_and_after_a_nan_score) {
  auto scores = at::randn({50, 3});
  const auto labels = at::randint(2, {50}, at::kLong);  // class 2 never occurs
  auto result = auroc_of(scores, labels, 1000, 50);
  EXPECT_TRUE(std::isnan(result.classes[2]));
  EXPECT_DOUBLE_EQ(result.mean, (result.classes[0] + result.classes[1]) / 2);
  scores[3][1] = std::nan("");
  result = auroc_of(scores, labels, 1000, 50);
  EXPECT_TRUE(std::isnan(result.mean));
  EXPECT_TRUE(std::isnan(auroc_of(scores, labels, 0, 50).mean));
  EXPECT_TRUE(std::isnan(auroc_of(at::randn({0, 2}), at::zeros({0}, at::kLong), 10, 1).mean));
}

TEST(Auroc, counts_ties_half_and_a_perfect_order_as_1) {
  const auto labels = at::tensor({0, 0, 1, 1}, at::kLong);
  const auto score = [&](const at::Tensor& of_one, int64_t exact) {
    return auroc_of(at::stack({at::zeros({4}), of_one}, 1), labels, exact, 4).mean;
  };
  for (const int64_t exact : {0, 1000}) {
    EXPECT_EQ(score(at::zeros({4}), exact), 0.5);
    EXPECT_EQ(score(at::tensor({1.0, 2.0, 3.0, 4.0}), exact), 1);
    EXPECT_EQ(score(at::tensor({4.0, 3.0, 2.0, 1.0}), exact), 0);
    EXPECT_EQ(score(at::tensor({1.0, 2.0, 2.0, 3.0}), exact), 0.875);
  }
  // Probabilities near 1, which are equal after a float32 softmax.
  EXPECT_EQ(score(at::tensor({20.0, 21.0, 22.0, 23.0}), 1000), 1);
}

// huggingface/transformers#7232: evaluation kept every score.
TEST(Auroc, from_bins_lies_within_the_bound_it_states_and_is_the_same_in_any_batches) {
  at::manual_seed(4);
  for (const int64_t classes : {2, 5}) {
    const auto labels = at::randint(classes, {20000}, at::kLong);
    const auto scores = at::randn({20000, classes}) + at::one_hot(labels, classes);
    const auto exact = auroc_of(scores, labels, 1 << 20, 20000);
    const auto binned = auroc_of(scores, labels, 1000, 999);
    EXPECT_EQ(exact.error, 0);
    EXPECT_GT(binned.error, 0);
    EXPECT_LT(binned.error, 1e-3);
    for (int64_t i = 0; i < classes; ++i) {
      EXPECT_LE(std::abs(binned.classes[i] - exact.classes[i]), binned.error + 1e-12);
    }
    EXPECT_EQ(auroc_of(scores, labels, 0, 20000).classes, binned.classes);
  }
}

}  // namespace
}  // namespace tanren
