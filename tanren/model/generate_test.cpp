#include "tanren/model/generate.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

// How often each token is drawn, as shares.
std::vector<double> shares(const at::Tensor& scores, const GenerateRequest& request) {
  std::vector<double> counts(static_cast<size_t>(scores.numel()));
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) counts[draw_token(scores, request, i)] += 1.0 / kDraws;
  return counts;
}

TEST(Generate, refuses_prompts_that_the_model_cannot_read_and_scores_that_are_no_numbers) {
  const auto error_for = [](std::vector<int64_t> prompt) {
    return testing::error_of<ConfigError>(
        [&] { generate({.prompt = prompt, .tokens = 1}, 4, 10, nullptr); });
  };
  TANREN_EXPECT_CONTAINS(error_for({}), "prompt is empty");
  TANREN_EXPECT_CONTAINS(error_for({3, 10}), "holds token 10, and the data has tokens 0 to 9");
  TANREN_EXPECT_CONTAINS(error_for({-1}), "holds token -1");
  const at::Tensor bad = at::tensor({1.0, std::nan("")});
  EXPECT_THROW(draw_token(bad, {}, 0), RunError);
}

TEST(Generate, draws_only_tokens_below_the_requested_vocabulary) {
  const at::Tensor scores = at::tensor({0.0, 1.0, 2.0, 9.0, 9.0, 9.0});
  const auto next = [&](const std::vector<int64_t>&, int64_t) { return scores; };
  const GenerateRequest all{.prompt = {1}, .tokens = 3, .temperature = 0};
  GenerateRequest below = all;
  below.vocab = 3;
  EXPECT_EQ(generate(all, 8, 6, next), (std::vector<int64_t>{1, 3, 3, 3}));
  EXPECT_EQ(generate(below, 8, 6, next), (std::vector<int64_t>{1, 2, 2, 2}));
  below.vocab = 60;  // more than the model has
  EXPECT_EQ(generate(below, 8, 6, next), generate(all, 8, 6, next));
}

TEST(Generate, temperature_zero_takes_the_most_probable_and_the_first_of_equals) {
  EXPECT_EQ(draw_token(at::tensor({0.5, 2.0, 2.0, -1.0}), {.temperature = 0}, 7), 1);
}

TEST(Generate, draws_by_the_softmax_of_scores_over_temperature) {
  const at::Tensor scores = at::tensor({0.0, std::log(2.0), std::log(5.0)});
  const auto plain = shares(scores, {.seed = 3});
  EXPECT_NEAR(plain[0], 1 / 8.0, 0.01);
  EXPECT_NEAR(plain[1], 2 / 8.0, 0.01);
  EXPECT_NEAR(plain[2], 5 / 8.0, 0.01);
  const auto cold = shares(scores, {.temperature = 0.5, .seed = 3});
  EXPECT_NEAR(cold[1], 4 / 30.0, 0.01);
  EXPECT_NEAR(cold[2], 25 / 30.0, 0.01);
}

TEST(Generate, top_k_and_top_p_keep_the_most_probable_only) {
  const at::Tensor scores = at::tensor({std::log(2.0), std::log(5.0), 0.0, std::log(2.0)});
  const auto two = shares(scores, {.top_k = 2});
  EXPECT_NEAR(two[1], 5 / 7.0, 0.01);
  EXPECT_NEAR(two[0], 2 / 7.0, 0.01);  // the lower of the tokens with equal scores
  EXPECT_EQ(two[2] + two[3], 0);
  const auto half = shares(scores, {.top_p = 0.5});
  EXPECT_NEAR(half[1], 1.0, 1e-9);  // one token holds exactly half
  const auto most = shares(scores, {.top_p = 0.51});
  EXPECT_NEAR(most[0], 2 / 7.0, 0.01);
  EXPECT_EQ(most[3], 0);
  EXPECT_NEAR(shares(scores, {.top_k = 1, .top_p = 1e-9})[1], 1.0, 1e-9);
  EXPECT_GT(shares(scores, {.top_k = 100})[2], 0);
}

TEST(Generate, repeats_bitwise_and_follows_the_seed) {
  const auto run = [](uint64_t seed) {
    return generate({.prompt = {1}, .tokens = 30, .seed = seed}, 8, 6,
                    [](const auto&, int64_t) { return at::zeros({9}); });
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
  for (const int64_t token : run(1)) EXPECT_LT(token, 6);  // only tokens of the data
}

TEST(Generate, the_window_moves_in_jumps_and_never_exceeds_the_context) {
  for (const int64_t context : {1, 2, 5, 8}) {
    for (int64_t length = 1; length < 40; ++length) {
      const int64_t begin = window_begin(length, context);
      EXPECT_LE(length - begin, context);
      EXPECT_GE(begin, 0);
      EXPECT_LT(begin, length);
      EXPECT_LE(window_begin(length - 1, context), begin);
    }
  }
  EXPECT_EQ(window_begin(8, 8), 0);
  EXPECT_EQ(window_begin(9, 8), 4);
  EXPECT_EQ(window_begin(12, 8), 4);
}

}  // namespace
}  // namespace tanren
