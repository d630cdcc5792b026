#include "tanren/base/block.h"
#include "tanren/base/error.h"
#include "tanren/base/random.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <optional>

namespace tanren {
namespace {

struct Stack {
  Stack() {
    at::manual_seed(4);
    for (int i = 0; i < 3; ++i) {
      weights.push_back((at::randn({16, 16}) * 0.3).requires_grad_());
    }
    mean = at::zeros({16});
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < weights.size(); ++i) {
      x = run_block("layers." + std::to_string(i), x, [this, i](const at::Tensor& input) {
        ++calls;
        const at::Tensor y = at::matmul(input, weights[i]).relu();
        {
          const at::NoGradGuard no_grad;
          mean.mul_(0.9).add_(y.to(at::kFloat).mean(0), 0.1);  // as batch norm's statistics
        }
        return at::dropout(at::gelu(y), 0.3, /*train=*/true) + input;
      });
    }
    return x.to(at::kFloat).pow(2).sum();
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& weight : weights) all.push_back(weight.grad());
    return all;
  }

  std::vector<at::Tensor> weights;
  at::Tensor mean;
  int calls = 0;
};

struct Outcome {
  std::vector<at::Tensor> gradients;
  at::Tensor input_gradient, mean, next_draw;
  int calls;
};

Outcome train_once(const std::vector<std::string>& patterns, bool bf16, bool input_needs_gradient) {
  Stack stack;
  at::manual_seed(9);
  const at::Tensor input = at::randn({8, 16}).requires_grad_(input_needs_gradient);
  at::Tensor loss;
  {
    std::optional<RecomputeScope> recompute;
    if (!patterns.empty()) recompute.emplace(patterns, std::vector<at::Tensor>{stack.mean});
    at::autocast::set_autocast_enabled(at::kCPU, bf16);
    loss = stack.forward(input);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  at::rand({3});  // other draws in between
  torch::autograd::backward({loss}, {});
  return {stack.gradients(), input.grad(), stack.mean, at::rand({4}), stack.calls};
}

TEST(Recompute, a_block_that_does_another_thing_the_second_time_is_an_error) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  int calls = 0;
  at::Tensor loss;
  {
    const RecomputeScope scope({"*"}, {});
    loss = run_block("odd", x, [&calls](const at::Tensor& input) {
             return ++calls == 1 ? input.exp() * input : input * 2;
           }).sum();
  }
  EXPECT_THROW(torch::autograd::backward({loss}, {}), Error);
}

TEST(Recompute, gradients_statistics_and_draws_are_bitwise_those_of_keeping_everything) {
  for (const bool bf16 : {false, true}) {
    for (const bool input_needs_gradient : {false, true}) {
      const Outcome kept = train_once({}, bf16, input_needs_gradient);
      const Outcome again = train_once({"layers.*"}, bf16, input_needs_gradient);
      EXPECT_EQ(kept.calls, 3);
      EXPECT_EQ(again.calls, 6);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(at::equal(again.gradients[i], kept.gradients[i])) << i << " bf16 " << bf16;
      }
      if (input_needs_gradient) {
        EXPECT_TRUE(at::equal(again.input_gradient, kept.input_gradient));
      }
      EXPECT_TRUE(at::equal(again.mean, kept.mean));
      EXPECT_TRUE(at::equal(again.next_draw, kept.next_draw));
    }
  }
}

TEST(Recompute, only_the_blocks_that_are_named_are_computed_twice) {
  EXPECT_EQ(train_once({"layers.1"}, false, false).calls, 4);
  EXPECT_EQ(train_once({"other.*"}, false, false).calls, 3);
}

TEST(Recompute, nothing_is_recomputed_without_gradients) {
  Stack stack;
  const at::NoGradGuard no_grad;
  const RecomputeScope scope({"*"}, {});
  EXPECT_FALSE(RecomputeScope::wants("layers.0"));
  stack.forward(at::ones({8, 16}));
  EXPECT_EQ(stack.calls, 3);
}

TEST(Recompute, blocks_within_a_block_are_part_of_it) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  int inner = 0;
  at::Tensor loss;
  {
    const RecomputeScope scope({"*"}, {});
    loss = run_block("outer", x, [&inner](const at::Tensor& input) {
             return run_block("outer.inner", input,
                              [&inner](const at::Tensor& again) {
                                ++inner;
                                return again.exp();
                              })
                 .sin();
           }).sum();
  }
  torch::autograd::backward({loss}, {});
  EXPECT_EQ(inner, 2);
  EXPECT_TRUE(at::allclose(x.grad(), at::cos(at::exp(at::ones({4}))) * at::exp(at::ones({4}))));
}

TEST(Recompute, a_graph_that_is_kept_can_be_gone_through_twice) {
  const at::Tensor x = at::full({4}, 0.5).requires_grad_();
  at::Tensor loss;
  {
    const RecomputeScope scope({"*"}, {});
    loss = run_block("a", x, [](const at::Tensor& input) { return input.exp() * input; }).sum();
  }
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  torch::autograd::backward({loss}, {});
  EXPECT_TRUE(at::allclose(x.grad(), once * 2));
}

TEST(Recompute, samples_draw_the_same_in_the_second_pass) {
  const at::Tensor x = at::ones({2, 3}).requires_grad_();
  std::vector<int64_t> attempts;
  at::Tensor loss;
  {
    const RandomScope random(1, 7, at::arange(2));
    const RecomputeScope scope({"*"}, {});
    loss = run_block("a", x, [&attempts](const at::Tensor& input) {
             attempts.push_back(RandomScope::current()->attempt());
             return input.exp();
           }).sum();
  }
  torch::autograd::backward({loss}, {});
  EXPECT_EQ(attempts, (std::vector<int64_t>{7, 7}));
}

}  // namespace
}  // namespace tanren
