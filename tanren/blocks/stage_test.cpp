#include "tanren/blocks/stage.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/testing.h"
#include "tanren/blocks/block.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace tanren {
namespace {

using testing::error_of;

const std::vector<std::string> kNames = {"stem", "shared", "shared", "in_place", "head"};

// Blocks that do not take their input as an argument, have the same name, hold other blocks, draw
// from the generator, and change their input in place.
struct StagedModel {
  StagedModel() {
    at::manual_seed(4);
    for (int i = 0; i < 5; ++i) weights.push_back((at::randn({16, 16}) * 0.3).requires_grad_());
    input = at::randn({8, 16});
  }
  at::Tensor forward() {
    at::Tensor x = run_block("stem", [&] {
      calls += "s";
      return at::matmul(input, weights[0]);
    });
    for (size_t i = 1; i < 3; ++i) {
      x = run_block("shared", x, [this, i](const at::Tensor& below) {
        calls += "b";
        const at::Tensor y =
            run_block("shared.inner", [&] { return at::matmul(below, weights[i]).tanh(); });
        return at::dropout(y, 0.3, /*train=*/true) + below;
      });
    }
    x = run_block("in_place", x, [this](const at::Tensor& below) {
      calls += "i";
      return at::matmul(at::Tensor(below).mul_(0.5), weights[3]);
    });
    x = run_block("head", [&] {
      calls += "h";
      return at::matmul(x, weights[4]);
    });
    return x.to(at::kFloat).pow(2).sum();
  }

  std::vector<at::Tensor> weights;
  at::Tensor input;
  std::string calls;
};

struct StageMode {
  const char* name;
  std::vector<std::string> recompute = {};
  std::vector<std::string> offload = {};
  bool bf16 = false;
};

// A forward within the scopes of a step.
void forward_within(const StageMode& mode, StagedModel& model, at::Tensor& loss) {
  std::optional<RecomputeScope> recompute;
  if (!mode.recompute.empty()) recompute.emplace(mode.recompute, std::vector<at::Tensor>{});
  std::optional<OffloadScope> offload;
  if (!mode.offload.empty()) {
    offload.emplace(
        OffloadOptions{.patterns = mode.offload, .min_bytes = 0, .held = model.weights});
  }
  loss = model.forward();
}

struct StagedRun {
  at::Tensor loss, next_draw;
  std::vector<at::Tensor> gradients;
  std::string calls;
};

// Forward of all stages, then backward of all. `cuts` are the first blocks of the later stages;
// none: the whole model, without a scope.
StagedRun run_in_stages(const std::vector<size_t>& cuts, const StageMode& mode) {
  StagedModel model;
  at::manual_seed(9);
  std::vector<StageBlocks> stages;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    stages.push_back({.blocks = kNames,
                      .begin = i == 0 ? 0 : cuts[i - 1],
                      .end = i == cuts.size() ? kNames.size() : cuts[i]});
  }
  std::vector<at::Tensor> received(stages.size()), sent(stages.size());
  at::Tensor loss;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i > 0) {
      received[i] = sent[i - 1].detach().clone().requires_grad_(sent[i - 1].requires_grad());
    }
    StageOutput result{.output = {}, .is_last = true};
    at::autocast::set_autocast_enabled(at::kCPU, mode.bf16);
    if (cuts.empty()) {
      forward_within(mode, model, loss);
    } else {
      StageScope scope(stages[i], received[i]);
      result = run_stage(scope, [&] { forward_within(mode, model, loss); });
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_EQ(result.is_last, i + 1 == stages.size());
    EXPECT_EQ(result.output.defined(), !result.is_last);
    EXPECT_EQ(loss.defined(), result.is_last);
    sent[i] = result.output;
  }
  EXPECT_FALSE(StageScope::is_open());
  if (loss.requires_grad()) {
    torch::autograd::backward({loss}, {});
    for (size_t i = stages.size() - 1; i-- > 0;) {
      torch::autograd::backward({sent[i]}, {received[i + 1].grad()});
    }
  }
  StagedRun run{loss.detach(), at::rand({4}), {}, model.calls};
  for (const auto& weight : model.weights) run.gradients.push_back(weight.grad());
  return run;
}

// A model of three blocks, whose code between the last two, and whose last block, are given.
using UseOfTensors = std::function<at::Tensor(const at::Tensor& first, const at::Tensor& second)>;
void forward_of_three(const UseOfTensors& between, const UseOfTensors& last) {
  const at::Tensor first = run_block("first", [] { return at::ones({2, 3}); });
  const at::Tensor second = run_block("second", first, [](const at::Tensor& x) { return x + 1; });
  const at::Tensor third = between(first, second);
  run_block("third", [&] { return last(first, third); });
}

std::string error_in_third_stage(const UseOfTensors& between, const UseOfTensors& last) {
  const StageBlocks stage{.blocks = {"first", "second", "third"}, .begin = 2, .end = 3};
  const std::string text = error_of<ConfigError>([&] {
    StageScope scope(stage, at::ones({2, 3}));
    run_stage(scope, [&] { forward_of_three(between, last); });
  });
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

TEST(Stage, the_output_of_a_block_of_another_stage_cannot_be_used) {
  const UseOfTensors second = [](const at::Tensor&, const at::Tensor& x) { return x; };
  const std::vector<UseOfTensors> uses = {
      [](const at::Tensor& x, const at::Tensor& y) { return x.size(0) > 0 ? y : y + 1; },
      [](const at::Tensor& x, const at::Tensor& y) { return y + x.numel(); },
      [](const at::Tensor& x, const at::Tensor&) { return x.relu(); },
      [](const at::Tensor& x, const at::Tensor&) { return x.detach(); },
      [](const at::Tensor& x, const at::Tensor& y) { return y.to(x.device()); },
      [](const at::Tensor& x, const at::Tensor& y) {
        return at::cat({y, x});
      },
      [](const at::Tensor& x, const at::Tensor& y) { return y * x; }};
  const UseOfTensors of_dtype = [](const at::Tensor& x, const at::Tensor&) { return x.mean(); };
  TANREN_EXPECT_CONTAINS(error_in_third_stage(of_dtype, second), "which another stage computes");
  TANREN_EXPECT_CONTAINS(error_in_third_stage(second, of_dtype), "which another stage computes");
  for (size_t i = 0; i < uses.size(); ++i) {
    TANREN_EXPECT_CONTAINS(error_in_third_stage(uses[i], second),
                           "uses a tensor between blocks, or several blocks on: the output of "
                           "block 'first', which another stage computes")
        << "between blocks, use " << i;
    TANREN_EXPECT_CONTAINS(error_in_third_stage(second, uses[i]), "the output of block 'first'")
        << "in a block, use " << i;
  }
  // The output of the last block before the stage is there, also between blocks.
  const StageBlocks stage{.blocks = {"first", "second", "third"}, .begin = 2, .end = 3};
  StageScope scope(stage, at::full({2}, 5.0));
  at::Tensor seen;
  const StageOutput result = run_stage(scope, [&] {
    forward_of_three([](const at::Tensor&, const at::Tensor& y) { return y * 2; },
                     [&](const at::Tensor&, const at::Tensor& x) { return seen = x; });
  });
  EXPECT_TRUE(result.is_last);
  EXPECT_TRUE(at::equal(seen, at::full({2}, 10.0)));
}

TEST(Stage, a_forward_through_other_blocks_is_an_error) {
  const auto message = [](const StageBlocks& stage, const std::function<void()>& forward) {
    return error_of<ConfigError>([&] {
      StageScope scope(stage, stage.begin > 0 ? at::ones({2}) : at::Tensor());
      run_stage(scope, forward);
    });
  };
  const auto block = [](const char* name) { run_block(name, [] { return at::ones({2}); }); };
  const std::vector<std::string> names = {"a", "b", "c"};
  const auto other = [&] {
    block("a");
    block("c");
  };
  TANREN_EXPECT_CONTAINS(message({names, 0, 2}, other),
                         "came to block 'c' where block 2 of 3, 'b', was expected");
  TANREN_EXPECT_CONTAINS(message({names, 2, 3}, other),
                         "came to block 'c' where block 2 of 3, 'b', was expected");
  const auto shorter = [&] { block("a"); };
  TANREN_EXPECT_CONTAINS(message({names, 0, 2}, shorter), "ended before block 'b', 2 of 3");
  TANREN_EXPECT_CONTAINS(message({names, 2, 3}, shorter), "ended before block 'b', 2 of 3");
  TANREN_EXPECT_CONTAINS(
      message({names, 0, 1}, [] { run_block("a", [] { return at::Tensor(); }); }),
      "block 'a' is the last of its stage and returned no tensor");
}

TEST(Stage, must_have_blocks_and_what_was_sent) {
  const at::Tensor x = at::ones({2});
  const std::vector<std::string> names = {"a", "b"};
  const auto refused = [](const StageBlocks& stage, const at::Tensor& received) {
    return error_of<Error>([&] { const StageScope scope(stage, received); });
  };
  TANREN_EXPECT_CONTAINS(refused({names, 1, 1}, x), "the blocks [1, 1) of 2");
  TANREN_EXPECT_CONTAINS(refused({names, 1, 3}, x), "the blocks [1, 3) of 2");
  TANREN_EXPECT_CONTAINS(refused({names, 1, 2}, {}), "begins with no tensor");
  TANREN_EXPECT_CONTAINS(refused({names, 0, 1}, x), "the first stage was given a tensor");
  EXPECT_FALSE(StageScope::is_open());
}

TEST(Stage, any_cuts_give_the_whole_models_numbers_bitwise) {
  const std::vector<StageMode> modes = {
      {.name = "plain"},
      {.name = "recompute", .recompute = {"shared"}},
      {.name = "offload", .offload = {"*"}},
      {.name = "bf16", .bf16 = true},
      {.name = "bf16 and recompute", .recompute = {"shared"}, .bf16 = true}};
  for (const auto& mode : modes) {
    const StagedRun whole = run_in_stages({}, mode);
    EXPECT_EQ(whole.calls, mode.recompute.empty() ? "sbbih" : "sbbihbb") << mode.name;
    for (size_t set = 1; set < 16; ++set) {
      std::vector<size_t> cuts;
      for (size_t i = 0; i < 4; ++i) {
        if ((set >> i & 1) != 0) cuts.push_back(i + 1);
      }
      const StagedRun staged = run_in_stages(cuts, mode);
      const std::string where = std::string(mode.name) + ", set of cuts " + std::to_string(set);
      EXPECT_EQ(staged.calls, whole.calls) << where;
      EXPECT_TRUE(at::equal(staged.loss, whole.loss)) << where;
      EXPECT_TRUE(at::equal(staged.next_draw, whole.next_draw)) << where;
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        EXPECT_TRUE(at::equal(staged.gradients[i], whole.gradients[i]))
            << where << ", weight " << i;
      }
    }
  }
}

TEST(Stage, without_gradients_gives_the_whole_models_loss) {
  const at::NoGradGuard no_grad;
  const StagedRun whole = run_in_stages({}, {.name = "evaluation"});
  const StagedRun staged = run_in_stages({1, 3}, {.name = "evaluation"});
  EXPECT_TRUE(at::equal(staged.loss, whole.loss));
  EXPECT_FALSE(staged.gradients[0].defined());
}

TEST(Stage, its_first_block_sees_all_strides_that_were_sent_and_may_change_its_input_in_place) {
  const StageBlocks stage{.blocks = {"a", "b", "c"}, .begin = 1, .end = 2};
  for (const bool needs_gradient : {true, false}) {
    const at::Tensor received =
        at::empty_strided({1, 4}, {9, 1}).fill_(3.0).requires_grad_(needs_gradient);
    at::Tensor x;
    StageScope scope(stage, received);
    const StageOutput result = run_stage(scope, [&] {
      x = run_block("a", [] { return at::Tensor(); });
      EXPECT_EQ(x.strides(), received.strides());
      EXPECT_EQ(x.data_ptr(), received.data_ptr());
      EXPECT_EQ(x.requires_grad(), needs_gradient);
      EXPECT_FALSE(x.requires_grad() && x.is_leaf());
      run_block("b", x, [](const at::Tensor& below) { return at::Tensor(below).mul_(2) * below; });
    });
    EXPECT_TRUE(at::equal(result.output, at::full({1, 4}, 36.0)));
    ASSERT_EQ(result.output.requires_grad(), needs_gradient);
    if (!needs_gradient) continue;
    torch::autograd::backward({result.output}, {at::ones({1, 4})});
    EXPECT_TRUE(at::equal(received.grad(), at::full({1, 4}, 24.0)));  // of (2 x)²
  }
}

TEST(Stage, that_ends_is_no_failure_in_the_trail) {
  const StageBlocks stage{.blocks = kNames, .begin = 1, .end = 3};
  const BlockTrailScope trail;
  StagedModel model;
  StageScope scope(stage, at::randn({8, 16}).requires_grad_());
  run_stage(scope, [&] { model.forward(); });
  EXPECT_EQ(block_name(block_trail().failed), "");
  EXPECT_EQ(memory_tag().block, 0);
  std::string names;
  for (const auto& passage : block_trail().passages) names += block_name(passage.id) + " ";
  EXPECT_EQ(names, "shared.inner shared shared.inner shared ");
}

TEST(Stage, an_error_in_its_blocks_leaves_as_it_is_and_names_the_block) {
  const StageBlocks stage{.blocks = {"a", "b"}, .begin = 0, .end = 1};
  const BlockTrailScope trail;
  StageScope scope(stage, {});
  const auto failing = [] {
    run_block("a", []() -> at::Tensor { throw std::runtime_error("no"); });
  };
  EXPECT_EQ(error_of<std::runtime_error>([&] { run_stage(scope, failing); }), "no");
  EXPECT_EQ(block_name(block_trail().failed), "a");
}

TEST(Stage, ends_a_forward_that_catches_everything) {
  const StageBlocks stage{.blocks = {"a", "b"}, .begin = 0, .end = 1};
  int calls = 0;
  StageScope scope(stage, {});
  const StageOutput result = run_stage(scope, [&] {
    try {
      run_block("a", [] { return at::full({2}, 7.0); });
    } catch (...) {
      ++calls;
    }
    run_block("b", [&] { return at::ones({++calls}); });
  });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(result.output, at::full({2}, 7.0)));
}

TEST(Stage, does_not_count_what_a_recomputed_block_runs_again_during_the_forward) {
  const StageBlocks stage{.blocks = {"a", "b", "c"}, .begin = 0, .end = 2};
  const at::Tensor weight = at::full({3}, 2.0).requires_grad_();
  int inner_calls = 0;
  StageScope scope(stage, {});
  const StageOutput result = run_stage(scope, [&] {
    const RecomputeScope recompute({"a"}, {});
    const at::Tensor y = run_block("a", weight, [&](const at::Tensor& x) {
      return run_block("a.inner", [&] {
        ++inner_calls;
        return x.exp();
      });
    });
    // A penalty on gradients, as some losses have it.
    const at::Tensor slope = torch::autograd::grad({y.sum()}, {weight})[0];
    run_block("b", [&] { return slope * 3; });
  });
  EXPECT_EQ(inner_calls, 2);
  EXPECT_TRUE(at::allclose(result.output, at::full({3}, 2.0).exp() * 3));
}

}  // namespace
}  // namespace tanren
