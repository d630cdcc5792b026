#include "tanren/train/answers.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

namespace tanren {
namespace {

Prediction predicted(const at::Tensor& outputs, const at::Tensor& targets = {}) {
  Prediction prediction;
  prediction.outputs = outputs;
  prediction.targets = targets;
  return prediction;
}

TEST(Answers, mark_the_samples_whose_outputs_are_nan_and_keep_the_others) {
  Answers answers({AnswerKind::classes, false, 2}, "predict");
  answers.add(predicted(at::tensor({0.0F, 1.0F, NAN, 1.0F, 3.0F, 2.0F}).view({3, 2})));
  const auto all = answers.take(3);
  EXPECT_FALSE(all[0].has_nan);
  EXPECT_TRUE(all[1].has_nan);
  EXPECT_FALSE(all[2].has_nan);
  EXPECT_EQ(all[0].label, 1);
  EXPECT_EQ(all[2].label, 0);
  Answers tokens({AnswerKind::tokens}, "predict");
  tokens.add(
      predicted(at::tensor({0.0F, 1.0F, NAN, 1.0F}).view({2, 2}), at::tensor({1, 1}, at::kLong)));
  const auto of_tokens = tokens.take(2);
  EXPECT_FALSE(of_tokens[0].has_nan);
  EXPECT_TRUE(of_tokens[1].has_nan);
}

// A language model's scores are far larger than its answers, so they are read in pieces of 21 rows.
TEST(Answers, of_tokens_are_the_same_in_pieces_as_in_one) {
  constexpr int64_t kSamples = 3, kLength = 20, kWords = 100'000;
  const at::Tensor ids = at::arange(kSamples * kLength * kWords).view({kSamples * kLength, kWords});
  const at::Tensor scores = (ids * 7919 % 100'003).to(at::kFloat) / 500;  // all different in a row
  at::Tensor targets = at::arange(kSamples * kLength) * 1009 % kWords;
  targets[5] = -100;
  const at::Tensor logs = scores.log_softmax(1), label = scores.argmax(1);
  Answers rows({AnswerKind::tokens}, "predict"), whole({AnswerKind::tokens}, "predict");
  rows.add(predicted(scores, targets));
  const at::Tensor by_sample = scores.view({kSamples, kLength, kWords}).transpose(1, 2);
  whole.add(predicted(by_sample, targets.view({kSamples, kLength})));
  for (auto* answers : {&rows, &whole}) {
    const auto all = answers->take(kSamples);
    for (int64_t i = 0; i < kSamples * kLength; ++i) {
      const auto sample = static_cast<size_t>(i / kLength);
      const TokenAnswer& one = all[sample].tokens.at(static_cast<size_t>(i % kLength));
      const auto target = targets[i].item<int64_t>();
      EXPECT_EQ(one.token, target < 0 ? -1 : target);
      EXPECT_EQ(one.label, label[i].item<int64_t>());
      EXPECT_EQ(one.score, logs[i][one.label].item<float>());
      EXPECT_EQ(one.log_probability, target < 0 ? 0 : logs[i][target].item<float>());
    }
  }
}

TEST(Answers, take_the_class_of_the_largest_output_also_where_probabilities_round_alike) {
  // Both probabilities are 0.5 in fp32.
  const at::Tensor outputs = at::tensor({0.0F, 1e-9F}).view({1, 2});
  ASSERT_EQ(outputs.softmax(1)[0][0].item<float>(), outputs.softmax(1)[0][1].item<float>());
  Answers answers({AnswerKind::classes, false, 2}, "predict");
  answers.add(predicted(outputs));
  EXPECT_EQ(answers.take(1)[0].label, 1);
  answers.add(predicted(at::zeros({1, 2})));
  EXPECT_EQ(answers.take(1)[0].label, 0) << "the lower of two";
}

}  // namespace
}  // namespace tanren
