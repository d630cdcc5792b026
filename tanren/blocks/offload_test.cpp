#include "tanren/blocks/offload.h"

#include "tanren/base/error.h"
#include "tanren/blocks/block.h"
#include "tanren/dry/trace_scope.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace tanren {
namespace {

struct MovedOnce {
  std::vector<at::Tensor> gradients;
  int64_t copied_bytes = 0;
};

// Three layers of 16 → 16 on 8 samples: 512 bytes an activation in fp32, 1024 a weight.
MovedOnce train_moving(const OffloadOptions& options, bool bf16,
                       const std::vector<std::string>& recomputed = {}) {
  at::manual_seed(4);
  std::vector<at::Tensor> weights;
  weights.reserve(3);
  for (int i = 0; i < 3; ++i) weights.push_back((at::randn({16, 16}) * 0.3).requires_grad_());
  at::Tensor x = at::randn({8, 16});
  at::Tensor loss;
  MovedOnce outcome;
  {
    std::optional<RecomputeScope> recompute;
    if (!recomputed.empty()) recompute.emplace(recomputed, std::vector<at::Tensor>{});
    OffloadOptions with_input = options;
    with_input.held.push_back(x);
    const OffloadScope offload(with_input);
    at::autocast::set_autocast_enabled(at::kCPU, bf16);
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor weight = weights[i];
      x = run_block("layers." + std::to_string(i), x, [weight](const at::Tensor& input) {
        const at::Tensor y = at::linear(input, weight);
        return at::dropout(at::gelu(y), 0.3, /*train=*/true) + input;
      });
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    loss = x.to(at::kFloat).pow(2).sum();
    outcome.copied_bytes = offload.copied_bytes();
  }
  torch::autograd::backward({loss}, {});
  for (const auto& weight : weights) outcome.gradients.push_back(weight.grad());
  return outcome;
}

// Views saves its input, the input's transpose and three of its columns. Its backward puts the
// tensors that it gets back into a Seen.
struct Seen {
  std::vector<at::Tensor> tensors;
};
class Views : public torch::autograd::Function<Views> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            int64_t seen) {
    context->save_for_backward({x, x.t(), x.narrow(0, 1, 3)});
    context->saved_data["seen"] = seen;
    return x.sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* seen = reinterpret_cast<Seen*>(context->saved_data["seen"].toInt());
    seen->tensors.assign(saved.begin(), saved.end());
    return {gradients[0].expand_as(saved[0]), at::Tensor()};
  }
};

TEST(Offload, a_saved_tensor_that_is_changed_in_place_is_an_error) {
  for (const int64_t min_bytes : {0, 1 << 20}) {
    const at::Tensor x = at::ones({4}).requires_grad_();
    at::Tensor loss;
    {
      const OffloadScope scope({.patterns = {"*"}, .min_bytes = min_bytes});
      loss = run_block("a", x, [](const at::Tensor& input) {
               at::Tensor y = input.exp();
               y.mul_(2);
               return y;
             }).sum();
    }
    EXPECT_THROW(torch::autograd::backward({loss}, {}), Error) << min_bytes;
  }
}

TEST(Offload, gradients_are_bitwise_those_of_keeping_everything) {
  for (const bool bf16 : {false, true}) {
    const MovedOnce kept = train_moving({}, bf16);
    const MovedOnce moved = train_moving({.patterns = {"layers.*"}, .min_bytes = 0}, bf16);
    EXPECT_EQ(kept.copied_bytes, 0);
    EXPECT_GT(moved.copied_bytes, 0);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(moved.gradients[i], kept.gradients[i])) << i << " bf16 " << bf16;
    }
  }
}

TEST(Offload, weights_and_their_casts_and_what_is_held_anyway_stay) {
  // Per layer: the input (except the first layer's, which is held), gelu's input, dropout's byte
  // mask.
  EXPECT_LE(train_moving({.patterns = {"*"}, .min_bytes = 0}, false).copied_bytes, 3 * (3 * 512));
  EXPECT_LE(train_moving({.patterns = {"*"}, .min_bytes = 0}, true).copied_bytes, 3 * (3 * 512));
}

TEST(Offload, small_tensors_and_other_blocks_stay) {
  const int64_t all = train_moving({.patterns = {"*"}, .min_bytes = 0}, false).copied_bytes;
  const int64_t one = train_moving({.patterns = {"layers.1"}, .min_bytes = 0}, false).copied_bytes;
  EXPECT_GT(one, 0);
  EXPECT_LT(one, all);
  EXPECT_EQ(train_moving({.patterns = {"other"}, .min_bytes = 0}, false).copied_bytes, 0);
  EXPECT_EQ(train_moving({.patterns = {"*"}}, false).copied_bytes, 0);
}

TEST(Offload, of_a_block_that_is_recomputed_too_nothing_is_moved) {
  const OffloadOptions all{.patterns = {"*"}, .min_bytes = 0};
  const MovedOnce kept = train_moving({}, false);
  EXPECT_EQ(train_moving(all, false, {"*"}).copied_bytes, 0);
  const MovedOnce both = train_moving(all, false, {"layers.1"});
  EXPECT_GT(both.copied_bytes, 0);
  EXPECT_LT(both.copied_bytes, train_moving(all, false).copied_bytes);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(both.gradients[i], kept.gradients[i]));
}

TEST(Offload, a_block_within_one_that_is_moved_may_be_recomputed) {
  const at::Tensor x = at::full({4}, 0.5).requires_grad_();
  int inner = 0;
  at::Tensor loss;
  {
    const RecomputeScope recompute({"outer.inner"}, {});
    const OffloadScope offload({.patterns = {"outer"}, .min_bytes = 0});
    loss = run_block("outer", x, [&inner](const at::Tensor& input) {
             return run_block("outer.inner", input,
                              [&inner](const at::Tensor& again) {
                                ++inner;
                                return again.exp();
                              })
                 .sin();
           }).sum();
    EXPECT_EQ(offload.copied_bytes(), 16);  // sin's input
  }
  torch::autograd::backward({loss}, {});
  EXPECT_EQ(inner, 2);
  EXPECT_TRUE(at::allclose(x.grad(), at::cos(at::exp(x)) * at::exp(x)));
}

TEST(Offload, a_storage_is_moved_once_and_its_views_come_back_as_they_were) {
  const at::Tensor leaf = at::arange(32, at::kFloat).view({4, 8}).requires_grad_();
  Seen seen;
  at::Tensor loss, values;
  {
    const OffloadScope scope({.patterns = {"*"}, .min_bytes = 0});
    loss = run_block("a", leaf, [&](const at::Tensor& input) {
      const at::Tensor x = input * 2;
      values = x.detach().clone();
      return Views::apply(x, reinterpret_cast<int64_t>(&seen));
    });
    EXPECT_EQ(scope.copied_bytes(), 32 * 4);
  }
  torch::autograd::backward({loss}, {});
  ASSERT_EQ(seen.tensors.size(), 3u);
  EXPECT_TRUE(at::equal(seen.tensors[0], values));
  EXPECT_TRUE(at::equal(seen.tensors[1], values.t()));
  EXPECT_EQ(seen.tensors[1].strides(), at::IntArrayRef({1, 8}));
  EXPECT_TRUE(at::equal(seen.tensors[2], values.narrow(0, 1, 3)));
  EXPECT_EQ(seen.tensors[0].const_data_ptr(), seen.tensors[1].const_data_ptr());
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({4, 8}, 2.0)));
}

TEST(Offload, a_small_part_of_a_large_tensor_stays) {
  const at::Tensor x = at::ones({64, 4}).requires_grad_();
  const OffloadScope scope({.patterns = {"*"}, .min_bytes = 0});
  run_block("a", [&] { return (x * 2).narrow(0, 3, 1).sin(); });
  EXPECT_EQ(scope.copied_bytes(), 0);
}

TEST(Offload, a_new_tensor_at_an_old_address_is_not_taken_for_the_old_one) {
  const at::Tensor x = at::full({64}, 0.5).requires_grad_();
  const OffloadScope scope({.patterns = {"*"}, .min_bytes = 0});
  for (int i = 1; i <= 20; ++i) {
    x.mutable_grad() = at::Tensor();
    const at::Tensor y = run_block("a", [&] { return (x * i).sin().sum(); });
    torch::autograd::backward({y}, {});
    EXPECT_TRUE(at::equal(x.grad(), at::cos(x.detach() * i) * i)) << i;
  }
}

TEST(Offload, nothing_is_moved_without_gradients) {
  const at::NoGradGuard no_grad;
  const OffloadScope scope({.patterns = {"*"}, .min_bytes = 0});
  run_block("a", [] { return at::ones({64}).sin(); });
  EXPECT_EQ(scope.copied_bytes(), 0);
}

// Bytes of activations that `trace` shows as made, and as still alive.
struct CameBack {
  int64_t made = 0, live = 0;
};
CameBack came_back(const MemoryTrace& trace) {
  CameBack bytes;
  for (const auto& event : trace) {
    if (event.kind != MemoryKind::activations) continue;
    bytes.made += std::max<int64_t>(event.bytes, 0);
    bytes.live += event.bytes;
  }
  return bytes;
}

TEST(Offload, what_the_block_before_put_away_comes_back_while_backward_works_on_one) {
  constexpr int64_t kBytes = 1000 * 4;
  const at::Tensor x = at::full({1000}, 0.5).requires_grad_();
  for (const bool to_the_end : {true, false}) {
    at::Tensor loss, middle;
    {
      const OffloadScope scope({.patterns = {"*"}, .min_bytes = 0});
      const at::Tensor first = run_block("a", [&] { return (x * 2).sin(); });
      middle = run_block("b", [&] { return (first * 3).sin(); });
      loss = run_block("c", [&] { return (middle * 4).sin(); }).sum();
    }
    const TraceScope tracing;
    CameBack at_middle;
    middle.register_hook([&](const at::Tensor&) { at_middle = came_back(tracing.trace()); });
    if (to_the_end) {
      const at::Tensor gradient = torch::autograd::grad({loss}, {x})[0];
      const at::Tensor y = (x * 2).sin(), z = (y * 3).sin();
      EXPECT_TRUE(at::allclose(gradient, 24 * (x * 2).cos() * (y * 3).cos() * (z * 4).cos()));
    } else {
      torch::autograd::grad({loss}, {middle});
    }
    EXPECT_EQ(at_middle.made, 2 * kBytes);  // c's own and b's
    loss = middle = at::Tensor();
    EXPECT_EQ(came_back(tracing.trace()).made, (to_the_end ? 3 : 2) * kBytes);
    EXPECT_EQ(came_back(tracing.trace()).live, 0);
  }
}

TEST(Offload, a_graph_that_is_kept_can_be_gone_through_twice) {
  const at::Tensor x = at::full({4}, 0.5).requires_grad_();
  at::Tensor loss;
  {
    const OffloadScope scope({.patterns = {"*"}, .min_bytes = 0});
    loss = run_block("a", x, [](const at::Tensor& input) { return input.exp() * input; }).sum();
  }
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  torch::autograd::backward({loss}, {});
  EXPECT_TRUE(at::equal(x.grad(), once * 2));
}

}  // namespace
}  // namespace tanren
