#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/operator_listener.h"
#include "tanren/base/random.h"
#include "tanren/blocks/block.h"
#include "tanren/dry/trace_scope.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
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

TEST(Recompute, a_block_that_saves_another_shape_the_second_time_is_an_error) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  int calls = 0;
  at::Tensor loss;
  {
    const RecomputeScope scope({"*"}, {});
    loss = run_block("odd", x, [&calls](const at::Tensor& input) {
             return (++calls == 1 ? input : input.narrow(0, 0, 2)).exp();
           }).sum();
  }
  try {
    torch::autograd::backward({loss}, {});
    FAIL() << "a backward";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Float [4] for backward, and Float [2] in its place"),
              std::string::npos)
        << error.what();
  }
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

// Counts, while it lives, this thread's operators with a given name that have ended.
class Count {
 public:
  explicit Count(std::string name) {
    wanted() = std::move(name);
    found() = 0;
    const auto before = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
      return nullptr;
    };
    const auto after = [](const at::RecordFunction& call, at::ObserverContext*) {
      if (call.name() == wanted() && !call.outputs().empty()) ++found();
    };
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(before, after).needsOutputs(true));
  }
  ~Count() { at::removeCallback(handle_); }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;
  int so_far() const { return found(); }

 private:
  static std::string& wanted() {
    static std::string name;
    return name;
  }
  static int& found() {
    static int number = 0;
    return number;
  }
  at::CallbackHandle handle_ = 0;
};

TEST(Recompute, the_second_pass_ends_with_the_last_tensor_that_backward_needs) {
  const at::Tensor x = at::randn({8, 16}).requires_grad_();
  const at::Tensor in = at::randn({16, 32}).requires_grad_();
  const at::Tensor out = at::randn({32, 16}).requires_grad_();
  int ended = 0;
  const auto block = [&](const at::Tensor& input) {
    const at::Tensor y = at::mm(at::gelu(at::mm(input, in)), out);
    ++ended;
    return y + 1;
  };
  block(x).sum().backward();
  const std::vector<at::Tensor> expected = {x.grad().clone(), in.grad().clone(),
                                            out.grad().clone()};
  for (const auto& tensor : {x, in, out}) tensor.mutable_grad().reset();
  at::Tensor loss;
  {
    const RecomputeScope scope({"*"}, {});
    loss = run_block("a", x, block).sum();
  }
  ended = 0;
  const Count products("aten::mm");
  torch::autograd::backward({loss}, {});
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(products.so_far(), 4 + 1);  // four gradients, and one of the two once more
  EXPECT_TRUE(at::equal(x.grad(), expected[0]));
  EXPECT_TRUE(at::equal(in.grad(), expected[1]));
  EXPECT_TRUE(at::equal(out.grad(), expected[2]));
}

TEST(Recompute, an_early_end_leaves_the_threads_state_as_it_was) {
  const at::Tensor x = at::randn({8, 16}).requires_grad_();
  const at::Tensor weight = at::randn({16, 16}).requires_grad_();
  const at::Tensor statistics = at::zeros({16});
  const BlockTrailScope trail;
  at::Tensor loss;
  {
    const RandomScope random(1, 7, at::arange(8));
    const RecomputeScope scope({"outer"}, {statistics});
    at::autocast::set_autocast_enabled(at::kCPU, true);
    loss = run_block("outer", x, [&](const at::Tensor& input) {
             const at::Tensor kept = at::dropout(input, 0.5, /*train=*/true);
             statistics.add_(1);
             return run_block("inner", kept,
                              [&](const at::Tensor& y) { return at::mm(y.exp(), weight); });
           }).sum();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  at::manual_seed(5);
  torch::autograd::backward({loss}, {});
  const at::Tensor next = at::rand({4});
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(at::rand({4}), next));
  EXPECT_EQ(c10::impl::tls_local_dispatch_key_set().included_, keys.included_);
  EXPECT_EQ(c10::impl::tls_local_dispatch_key_set().excluded_, keys.excluded_);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_EQ(RandomScope::current(), nullptr);
  EXPECT_FALSE(in_recomputed_block());
  EXPECT_EQ(block_trail().failed, 0);
  EXPECT_EQ(memory_tag().block, 0);
  EXPECT_TRUE(at::equal(statistics, at::ones({16})));
}

// Saves its result before anything else, as exp does, and its input.
class SavesItsResult : public torch::autograd::Function<SavesItsResult> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            bool first) {
    at::Tensor y = x.exp();
    if (first) {
      context->save_for_backward({y, x});
    } else {
      context->save_for_backward({x, y});
    }
    context->saved_data["first"] = first;
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[context->saved_data["first"].toBool() ? 0 : 1], at::Tensor()};
  }
};

TEST(Recompute, a_function_that_saves_its_result_leaves_nothing_behind) {
  const at::Tensor x = at::full({1000}, 0.5).requires_grad_();
  for (const bool first : {true, false}) {
    const TraceScope tracing;
    {
      at::Tensor loss;
      {
        const RecomputeScope scope({"*"}, {});
        loss = run_block("a", x, [first](const at::Tensor& input) {
                 const at::Tensor y = SavesItsResult::apply(input * 2, first);
                 return SavesItsResult::apply(y * 0.1, first);
               }).sum();
      }
      const at::Tensor gradient = torch::autograd::grad({loss}, {x})[0];
      const at::Tensor y = (x.detach() * 2).exp();
      EXPECT_TRUE(at::allclose(gradient, (y * 0.1).exp() * 0.2 * y));
    }
    int64_t live = 0;
    for (const auto& event : tracing.trace()) live += event.bytes;
    EXPECT_EQ(live, 0) << first;
  }
}

TEST(Recompute, a_block_that_takes_an_early_end_for_an_error_goes_on) {
  const at::Tensor x = at::randn({4}).requires_grad_();
  at::Tensor loss;
  int caught = 0;
  {
    const RecomputeScope scope({"*"}, {});
    loss = run_block("a", x * 1, [&caught](const at::Tensor& input) {
             at::Tensor y;
             try {
               y = input.sin();
             } catch (...) {
               ++caught;
               y = input * 1;
             }
             return y;
           }).sum();
  }
  torch::autograd::backward({loss}, {});
  EXPECT_EQ(caught, 1);
  EXPECT_TRUE(at::equal(x.grad(), x.detach().cos()));
}

TEST(Recompute, nothing_is_recomputed_without_gradients) {
  Stack stack;
  const at::NoGradGuard no_grad;
  const RecomputeScope scope({"*"}, {});
  EXPECT_FALSE(RecomputeScope::wants("layers.0"));
  stack.forward(at::ones({8, 16}));
  EXPECT_EQ(stack.calls, 3);
}

TEST(Recompute, the_second_pass_sees_its_input_with_the_same_strides) {
  const at::Tensor x = at::randn({1, 3, 4, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weight = at::ones({1, 3, 1, 1}).requires_grad_();
  std::vector<std::vector<int64_t>> seen;
  const RecomputeScope recompute({"*"}, {});
  const at::Tensor y = run_block("block", x, [&](const at::Tensor& input) {
    seen.push_back(input.strides().vec());
    return (input * weight).relu();
  });
  y.sum().backward();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1], seen[0]);
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

// Answers a product by twice the product.
struct DoublingListener final : OperatorListener {
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    return at::matmul(left, right) * 2;
  }
};

TEST(Recompute, a_listener_hears_the_second_pass_though_its_scope_has_ended) {
  const at::Tensor x = at::randn({4, 3});
  const auto gradient = [&](const std::vector<std::string>& patterns) {
    const at::Tensor weight = at::full({3, 3}, 0.1).requires_grad_();
    at::Tensor loss;
    {
      const RecomputeScope recompute(patterns, {});
      const OperatorListenerScope listening(std::make_shared<DoublingListener>());
      loss = run_block("block", x, [&](const at::Tensor& input) {
               return at::matmul(input, weight).exp() * input;
             }).sum();
    }
    torch::autograd::backward({loss}, {});
    EXPECT_EQ(OperatorListenerScope::current(), nullptr);
    return weight.grad();
  };
  EXPECT_TRUE(at::equal(gradient({"block"}), gradient({"none"})));
}

TEST(Recompute, is_refused_where_another_library_has_replaced_the_engine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        torch::autograd::set_default_engine_stub(&torch::autograd::Engine::get_base_engine);
        try {
          const RecomputeScope scope({"*"}, {});
        } catch (const Error& error) {
          std::fprintf(stderr, "%s", error.what());
          std::_Exit(2);
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(2), "has installed its own autograd engine");
}

}  // namespace
}  // namespace tanren
