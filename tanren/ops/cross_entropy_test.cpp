#include "tanren/ops/cross_entropy.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

// {sum, gradient under a seed of 0.7}
std::pair<at::Tensor, at::Tensor> entropy(const at::Tensor& logits, const at::Tensor& labels,
                                          bool reference) {
  const at::Tensor leaf = logits.detach().clone().requires_grad_();
  const at::Tensor sum =
      reference ? cross_entropy_sum_reference(leaf, labels) : cross_entropy_sum(leaf, labels);
  return {sum.detach(), torch::autograd::grad({sum * 0.7}, {leaf})[0]};
}

at::Tensor some_labels(int64_t rows, int64_t classes) {
  at::Tensor labels = at::randint(classes, {rows}, at::kLong);
  labels[rows / 2] = -100;
  return labels;
}

TEST(CrossEntropy, a_label_past_the_classes_is_named) {
  try {
    cross_entropy_sum(at::zeros({2, 5}), at::tensor({1, 5}, at::kLong));
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("label 5 is outside [0, 5)"), std::string::npos);
  }
  EXPECT_THROW(cross_entropy_sum(at::zeros({1, 5}), at::tensor({-1}, at::kLong)), DataError);
}

TEST(CrossEntropy, equals_the_reference_in_value_and_gradient) {
  for (const int64_t classes : {1, 7, 1024, 1025, 5003}) {
    const at::Tensor exact = at::randn({9, classes}, at::kDouble) * 5;
    const at::Tensor labels = some_labels(9, classes);
    const auto [sum, gradient] = entropy(exact, labels, true);
    const auto [own, own_gradient] = entropy(exact, labels, false);
    EXPECT_NEAR(own.item<double>(), sum.item<double>(), 1e-10) << classes;
    EXPECT_TRUE(at::allclose(own_gradient, gradient, 1e-9, 1e-12)) << classes;
    const auto [single, single_gradient] = entropy(exact.to(at::kFloat), labels, false);
    EXPECT_NEAR(single.item<double>(), sum.item<double>(), 1e-5 * sum.item<double>() + 1e-6);
    EXPECT_TRUE(at::allclose(single_gradient.to(at::kDouble), gradient, 1e-4, 1e-6)) << classes;
  }
}

TEST(CrossEntropy, of_16_bit_scores_is_exact_but_for_the_rounding_of_the_gradient) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor logits = (at::randn({9, 3000}) * 5).to(type);
    const at::Tensor labels = some_labels(9, 3000);
    const auto [sum, gradient] = entropy(logits.to(at::kDouble), labels, true);
    const auto [own, own_gradient] = entropy(logits, labels, false);
    EXPECT_EQ(own.scalar_type(), at::kFloat);
    EXPECT_EQ(own_gradient.scalar_type(), type);
    EXPECT_NEAR(own.item<double>(), sum.item<double>(), 1e-5 * sum.item<double>());
    EXPECT_TRUE(at::allclose(own_gradient.to(at::kDouble), gradient, 0.005, 1e-6));
  }
}

TEST(CrossEntropy, far_apart_scores_neither_overflow_nor_vanish) {
  const at::Tensor logits = at::tensor({-3e38f, 80.0f, 200.0f, 3e38f}).view({2, 2});
  const at::Tensor sum = cross_entropy_sum(logits, at::tensor({1, 1}, at::kLong));
  EXPECT_EQ(sum.item<double>(), 0);
  at::Tensor rising = at::arange(4096, at::kFloat).view({1, 4096});  // each piece a new maximum
  EXPECT_NEAR(cross_entropy_sum(rising, at::tensor({4095}, at::kLong)).item<double>(),
              -std::log(1 - std::exp(-1.0)), 1e-5);
}

TEST(CrossEntropy, a_nan_or_an_infinite_score_stays_visible) {
  at::Tensor logits = at::zeros({2, 2000});
  logits[1][1500] = std::nan("");
  const at::Tensor labels = at::tensor({3, 4}, at::kLong);
  EXPECT_TRUE(std::isnan(cross_entropy_sum(logits, labels).item<double>()));
  logits[1][1500] = INFINITY;
  EXPECT_FALSE(std::isfinite(cross_entropy_sum(logits, labels).item<double>()));
}

TEST(CrossEntropy, of_ignored_rows_alone_is_zero_with_a_zero_gradient) {
  const auto [sum, gradient] = entropy(at::randn({3, 4}), at::full({3}, -100, at::kLong), false);
  EXPECT_EQ(sum.item<double>(), 0);
  EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace tanren
