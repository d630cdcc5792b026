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
