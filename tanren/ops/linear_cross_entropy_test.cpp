#include "tanren/ops/linear_cross_entropy.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_listener.h"
#include "tanren/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace tanren {
namespace {

constexpr int64_t kRows = 13, kWidth = 6, kClasses = 9;

struct Operands {
  at::Tensor states, weight, bias, labels;
};

Operands some_operands(at::ScalarType type, int64_t classes = kClasses) {
  Operands given{at::randn({kRows, kWidth}, at::kDouble).to(type),
                 at::randn({classes, kWidth}, at::kDouble).to(type),
                 at::randn({classes}, at::kDouble).to(type),
                 at::randint(classes, {kRows}, at::kLong)};
  given.labels[4] = -100;
  return given;
}

// {value, gradients of states, weight and bias under a seed of 0.7}
template <typename F>
std::vector<at::Tensor> differentiated(const Operands& given, const F& loss) {
  Operands leaves = given;
  std::vector<at::Tensor> inputs;
  for (at::Tensor* t : {&leaves.states, &leaves.weight, &leaves.bias}) {
    if (!t->defined()) continue;
    *t = t->detach().clone().requires_grad_();
    inputs.push_back(*t);
  }
  const at::Tensor sum = loss(leaves);
  std::vector<at::Tensor> result = torch::autograd::grad({sum * 0.7}, inputs);
  result.insert(result.begin(), sum.detach());
  return result;
}

std::vector<at::Tensor> chunked(const Operands& given, const LinearCrossEntropyOptions& options) {
  return differentiated(given, [&](const Operands& o) {
    return linear_cross_entropy_sum(o.states, o.weight, o.bias, o.labels, options);
  });
}

std::vector<at::Tensor> whole(const Operands& given, double smoothing = 0) {
  return differentiated(given, [&](const Operands& o) {
    const at::Tensor scores =
        o.bias.defined() ? at::linear(o.states, o.weight, o.bias) : at::linear(o.states, o.weight);
    return cross_entropy_sum_reference(scores, o.labels, smoothing);
  });
}

void expect_close(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                  double relative, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const at::Tensor reference = expected[i].to(at::kDouble);
    const double far = (actual[i].to(at::kDouble) - reference).norm().item<double>();
    EXPECT_LE(far, relative * reference.norm().item<double>()) << what << ", " << i;
  }
}

TEST(LinearCrossEntropy, a_label_past_the_classes_is_named) {
  Operands given = some_operands(at::kFloat);
  given.labels[12] = kClasses;
  EXPECT_THROW(chunked(given, {0, 4}), DataError);
}

TEST(LinearCrossEntropy, is_differentiated_once) {
  const Operands given = some_operands(at::kDouble);
  const at::Tensor states = given.states.requires_grad_();
  const at::Tensor sum = linear_cross_entropy_sum(states, given.weight, {}, given.labels, {0, 4});
  EXPECT_THROW(torch::autograd::grad({sum}, {states}, {}, true, /*create_graph=*/true), Error);
}

TEST(LinearCrossEntropy, equals_the_whole_for_every_chunk_with_and_without_bias_and_smoothing) {
  for (const bool has_bias : {false, true}) {
    Operands given = some_operands(at::kDouble);
    if (!has_bias) given.bias = at::Tensor();
    for (const double smoothing : {0.0, 0.2}) {
      for (const int64_t chunk : {1, 4, 12, 13, 100, 0}) {
        expect_close(chunked(given, {smoothing, chunk}), whole(given, smoothing), 1e-12,
                     "chunk " + std::to_string(chunk) + ", smoothing " + std::to_string(smoothing));
      }
    }
  }
}

TEST(LinearCrossEntropy, of_many_classes_in_16_bit_is_as_exact_as_the_operands_allow) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Operands given = some_operands(type, 9000);
    Operands exact = given;
    for (at::Tensor* t : {&exact.states, &exact.weight, &exact.bias}) *t = t->to(at::kDouble);
    const auto actual = chunked(given, {0, 5});
    EXPECT_EQ(actual[0].scalar_type(), at::kFloat);
    EXPECT_EQ(actual[2].scalar_type(), type);
    expect_close(actual, whole(exact), type == at::kHalf ? 0.004 : 0.02, toString(type));
  }
}

TEST(LinearCrossEntropy, follows_autocast_and_gives_gradients_in_the_weights_type) {
  const Operands given = some_operands(at::kFloat);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    const auto after = c10::make_scope_exit([] {
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    });
    const auto actual = chunked(given, {0, 5});
    for (const auto& gradient : actual) EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    expect_close(actual, whole(given), type == at::kHalf ? 0.004 : 0.02, toString(type));
  }
}

TEST(LinearCrossEntropy, a_retained_graph_gives_the_same_again) {
  const Operands given = some_operands(at::kDouble);
  const at::Tensor states = given.states.requires_grad_(), weight = given.weight.requires_grad_();
  const at::Tensor sum = linear_cross_entropy_sum(states, weight, {}, given.labels, {0, 4});
  const auto first = torch::autograd::grad({sum}, {states, weight}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({sum * 3}, {states, weight});
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::allclose(first[i] * 3, second[i]));
}

TEST(LinearCrossEntropy, differentiates_only_what_asks_for_it) {
  const Operands given = some_operands(at::kDouble);
  const at::Tensor states = given.states.clone().requires_grad_();
  const at::Tensor sum =
      linear_cross_entropy_sum(states, given.weight, given.bias, given.labels, {0, 4});
  const auto gradient = torch::autograd::grad({sum}, {states})[0];
  EXPECT_TRUE(at::allclose(gradient * 0.7, whole(given)[1]));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear_cross_entropy_sum(states, given.weight, {}, given.labels).requires_grad());
}

struct DoubledWeights final : OperatorListener {
  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    rows.push_back(input.size(0));
    if (!answers) return {};
    return at::linear(input, weight * 2, bias);
  }
  bool answers = false;
  std::vector<int64_t> rows;
};

TEST(LinearCrossEntropy, of_each_chunk_is_heard_as_a_linear_and_may_be_answered) {
  for (const double smoothing : {0.0, 0.1}) {
    Operands given = some_operands(at::kDouble);
    for (const bool answers : {false, true}) {
      const auto listener = std::make_shared<DoubledWeights>();
      listener->answers = answers;
      std::vector<at::Tensor> actual;
      {
        const OperatorListenerScope scope(listener);
        actual = chunked(given, {smoothing, 5});
      }
      EXPECT_EQ(listener->rows, std::vector<int64_t>({5, 5, 3}));
      Operands heard = given;
      if (answers) heard.weight = given.weight * 2;
      auto expected = whole(heard, smoothing);
      if (answers) expected[2] = expected[2] * 2;  // the slope at the listener's weight
      expect_close(actual, expected, 1e-12, answers ? "answered" : "heard");
    }
  }
}

TEST(LinearCrossEntropy, names_a_label_past_the_classes_within_a_listener_too) {
  Operands given = some_operands(at::kFloat);
  given.labels[12] = kClasses;
  const OperatorListenerScope scope(std::make_shared<DoubledWeights>());
  for (const double smoothing : {0.0, 0.1}) {
    EXPECT_THROW((void)linear_cross_entropy_sum(given.states, given.weight, given.bias,
                                                given.labels, {smoothing, 5}),
                 DataError)
        << smoothing;
  }
}

TEST(LinearCrossEntropy, chosen_chunks_are_full_and_bounded) {
  EXPECT_EQ(default_chunk_rows(50257), 640);
  EXPECT_EQ(default_chunk_rows(1000000), 512);
  EXPECT_GT(default_chunk_rows(65), 500000);
}

}  // namespace
}  // namespace tanren
