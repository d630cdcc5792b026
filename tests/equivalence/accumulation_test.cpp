// Accumulation is exact: N microbatches ≡ one batch, for any counts, last window and split.
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tanren::testing {
namespace {

class Split : public ::testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(Split, of_a_batch_of_30_gives_the_whole_batchs_weights_through_10_adamw_steps_in_fp64) {
  const auto [kind, microbatch] = GetParam();
  auto config = tiny_config(kind);
  config.model.dropout = 0.2;
  config.clip.norm = 0.5;
  TinyRun whole(config);
  config.batch.microbatch = microbatch;
  TinyRun split(config);
  const auto before = whole.weights();
  EXPECT_TRUE(at::equal(before, split.weights()));
  const auto expected = whole.steps(10), got = split.steps(10);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].objectives[0].loss, expected[i].objectives[0].loss, 1e-12);
  }
  EXPECT_EQ(got[0].microsteps, (30 + microbatch - 1) / microbatch);
  EXPECT_GT(relative(whole.weights(), before), 1e-3);  // the weights did move
  EXPECT_LT(relative(split.weights(), whole.weights()), 1e-10);
}

TEST_P(Split, gives_the_whole_batchs_fp32_gradient_to_1e6_of_its_norm) {
  const auto [kind, microbatch] = GetParam();
  auto config = tiny_config(kind);
  config.precision.mode = "fp32";
  config.model.dropout = 0.2;
  TinyRun whole(config);
  config.batch.microbatch = microbatch;
  TinyRun split(config);
  whole.step();
  split.step();
  EXPECT_LT(relative(split.gradients(), whole.gradients()), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, Split,
                         ::testing::Combine(::testing::Values("mlp", "convnet"),
                                            ::testing::Values(30, 15, 10, 7, 1)));

// Sequences of different lengths; a sample's loss is the sum over its tokens.
class Ragged : public Dataset {
 public:
  int64_t size() const override { return 37; }
  DataInfo info() const override { return {{6}, 1, false}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated collated;
    const auto count = static_cast<int64_t>(indices.size());
    at::Tensor inputs = at::empty({count, 6}), mask = at::zeros({count, 6});
    collated.batch.ids = at::tensor(indices, at::kLong);
    double tokens = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t length = 1 + indices[i] % 6;
      mask[i].narrow(0, 0, length).fill_(1);
      tokens += static_cast<double>(length);
      for (int64_t j = 0; j < 6; ++j) {
        inputs[i][j] = static_cast<double>(random_bits(3, indices[i], j) % 1000) / 500.0 - 1;
      }
    }
    collated.batch.fields.set("inputs", inputs);
    collated.batch.fields.set("mask", mask);
    collated.counts = {{"samples", static_cast<double>(count)}, {"tokens", tokens}};
    return collated;
  }
};

struct Net : torch::nn::Module {
  Net() {
    weight = register_parameter("weight", at::full({6}, 0.3));
    unused = register_parameter("unused", at::ones({3}));
    frozen = register_parameter("frozen", at::ones({6}), /*requires_grad=*/false);
  }
  at::Tensor weight, unused, frozen;
};

Task ragged_task() {
  auto net = std::make_shared<Net>();
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net](const Batch& batch) -> Terms {
    const auto error = (batch["inputs"] * net->weight * net->frozen - 0.5).pow(2) * batch["mask"];
    return {{"error", error.sum(), "tokens"}};
  };
  task.phases = {phase};
  return task;
}

RunConfig ragged_config() {
  auto config = tiny_config("mlp");
  config.optimizer.kind = "sgd";
  config.optimizer.weight_decay = 0.1;
  config.data.shuffle = false;
  return config;
}

// The gradient of the mean over all tokens of samples [begin, end), computed by hand.
at::Tensor token_mean_gradient(const Ragged& data, int64_t begin, int64_t end) {
  std::vector<int64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  const auto collated = data.collate(indices);
  const auto weight = at::full({6}, 0.3, at::kFloat).to(at::kDouble).requires_grad_();
  const auto mask = collated.batch["mask"].to(at::kDouble);
  const auto error =
      ((collated.batch["inputs"].to(at::kDouble) * weight - 0.5).pow(2) * mask).sum() / mask.sum();
  error.backward();
  return weight.grad();
}

TEST(Accumulation, divides_once_by_the_global_count_of_tokens_at_any_split) {
  const Ragged data;
  for (const int64_t microbatch : {30, 7, 1}) {
    auto config = ragged_config();
    config.batch.microbatch = microbatch;
    TinyRun run(config, &data, ragged_task());
    run.step();
    const auto gradient = run.objective().parameters[0].tensor.grad();
    EXPECT_LT(relative(gradient, token_mean_gradient(data, 0, 30)), 1e-12) << microbatch;
  }
}

TEST(Accumulation, divides_the_short_last_window_by_what_it_holds) {
  const Ragged data;
  auto config = ragged_config();
  config.batch.microbatch = 5;
  config.optimizer.learning_rate = 1e-30;  // the second gradient sees the initial weights
  TinyRun run(config, &data, ragged_task());
  run.step();
  const auto report = run.step();
  EXPECT_EQ(report.samples, 7);
  EXPECT_EQ(report.microsteps, 2);
  const auto gradient = run.objective().parameters[0].tensor.grad();
  EXPECT_LT(relative(gradient, token_mean_gradient(data, 30, 37)), 1e-12);
}

TEST(Accumulation, drops_the_short_last_batch_only_when_asked) {
  const Ragged data;
  auto config = ragged_config();
  config.data.last = "drop";
  TinyRun run(config, &data, ragged_task());
  run.step();
  EXPECT_EQ(run.state.epoch, 0);
  EXPECT_EQ(run.step().samples, 30);
  EXPECT_EQ(run.state.epoch, 1);
}

TEST(Accumulation, of_a_whole_epoch_is_one_update) {
  const Ragged data;
  auto config = ragged_config();
  config.batch.global_batch = "epoch";
  config.batch.microbatch = 4;
  TinyRun run(config, &data, ragged_task());
  const auto report = run.step();
  EXPECT_EQ(report.samples, 37);
  EXPECT_EQ(report.microsteps, 10);
  EXPECT_LT(relative(run.objective().parameters[0].tensor.grad(), token_mean_gradient(data, 0, 37)),
            1e-12);
}

TEST(Accumulation, leaves_parameters_without_gradient_and_frozen_ones_alone_even_by_weight_decay) {
  const Ragged data;
  TinyRun run(ragged_config(), &data, ragged_task());
  run.steps(2);
  const auto named = run.state.task.module->named_parameters();
  EXPECT_TRUE(at::equal(named["unused"].cpu(), at::ones({3}, at::kDouble)));
  EXPECT_TRUE(at::equal(named["frozen"].cpu(), at::ones({6}, at::kDouble)));
  EXPECT_FALSE(at::equal(named["weight"].cpu(), at::full({6}, 0.3, at::kFloat).to(at::kDouble)));
  EXPECT_EQ(run.objective().parameters.size(), 2u);
}

TEST(Accumulation, a_term_with_an_unknown_count_is_named) {
  const Ragged data;
  auto task = ragged_task();
  task.phases[0].forward = [inner = task.phases[0].forward](const Batch& batch) {
    auto terms = inner(batch);
    terms[0].count_name = "pixels";
    return terms;
  };
  TinyRun run(ragged_config(), &data, task);
  EXPECT_THROW(run.step(), DataError);
}

TEST(Accumulation, adds_gradients_in_fp32_under_bf16_and_fp16) {
  for (const char* mode : {"bf16", "fp16"}) {
    auto config = tiny_config("mlp");
    config.precision.mode = mode;
    config.batch.microbatch = 5;
    TinyRun run(config);
    run.step();
    for (const auto& flat : run.objective().gradients.flat()) {
      EXPECT_EQ(flat.scalar_type(), at::kFloat);
    }
  }
}

TEST(Objectives, on_one_forward_change_only_their_own_parameters) {
  struct Pair : torch::nn::Module {
    Pair() {
      first = register_parameter("first", at::ones({2}));
      second = register_parameter("second", at::ones({2}));
    }
    at::Tensor first, second;
  };
  auto net = std::make_shared<Pair>();
  Task task;
  task.module = net;
  PhaseSpec phase;
  // Each loss reaches both parameters; each objective owns one.
  phase.forward = [net](const Batch& batch) -> Terms {
    const auto product = net->first * net->second * batch["inputs"].sum();
    return {{"up", product.sum()}, {"down", -2 * product.sum()}};
  };
  phase.objectives = {{"a", {{"up", 1.0}}, {"first"}}, {"b", {{"down", 1.0}}, {"second"}}};
  task.phases = {phase};
  const Ragged data;
  auto config = ragged_config();
  config.optimizer.weight_decay = 0;
  TinyRun run(config, &data, task);
  run.step();
  const auto& objectives = run.state.phases[0].objectives;
  EXPECT_LT(relative(objectives[1].gradients.flat()[0], -2 * objectives[0].gradients.flat()[0]),
            1e-12);
  phase.objectives[1].parameters = {"*"};
  task.phases = {phase};
  EXPECT_THROW(make_phases(task, run.parts.plan), ConfigError);
}

}  // namespace
}  // namespace tanren::testing
