// A transformer with dropout everywhere composes exactly: the split cannot change a run, and a
// state that was saved and loaded goes on bitwise.
#include "tests/support/tiny_run.h"
#include "tests/support/token_data.h"

#include <gtest/gtest.h>

namespace tanren::testing {
namespace {

RunConfig gpt2_config() {
  auto config = tiny_config("gpt2");
  config.model.num_layers = 2;
  config.model.num_heads = 2;
  config.model.hidden_size = 16;
  config.model.context_length = 16;
  config.model.dropout = 0.1;
  config.model.initializer_range = 0.1;
  config.clip.norm = 0.5;
  return config;
}

TinyRun gpt2_run(const RunConfig& config, const TokenData& data) {
  return TinyRun(config, &data, build_task(config, ModelRegistry(), data));
}

class Gpt2Split : public ::testing::TestWithParam<int64_t> {};

TEST_P(Gpt2Split, with_unequal_token_counts_gives_the_whole_batchs_weights_through_10_adamw_steps) {
  const TokenData data;
  auto config = gpt2_config();
  TinyRun whole = gpt2_run(config, data);
  config.batch.microbatch = GetParam();
  TinyRun split = gpt2_run(config, data);
  const auto before = whole.weights();
  const auto expected = whole.steps(10), got = split.steps(10);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].objectives[0].loss, expected[i].objectives[0].loss, 1e-12);
  }
  EXPECT_GT(relative(whole.weights(), before), 1e-3);
  EXPECT_LT(relative(split.weights(), whole.weights()), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Gpt2Split, ::testing::Values(15, 10, 7, 1));

TEST(Gpt2Run, gives_the_whole_batchs_fp32_gradient_to_1e6_of_its_norm) {
  const TokenData data;
  auto config = gpt2_config();
  config.precision.mode = "fp32";
  TinyRun whole = gpt2_run(config, data);
  config.batch.microbatch = 7;
  TinyRun split = gpt2_run(config, data);
  whole.step();
  split.step();
  EXPECT_LT(relative(split.gradients(), whole.gradients()), 1e-6);
}

TEST(Gpt2Run, that_is_saved_and_loaded_between_updates_goes_on_bitwise) {
  const TokenData data;
  for (const char* mode : {"fp32", "bf16"}) {
    auto config = gpt2_config();
    config.precision.mode = mode;
    config.batch.microbatch = 8;
    TinyRun straight = gpt2_run(config, data);
    straight.steps(6);
    TinyRun first = gpt2_run(config, data);
    first.steps(3);
    TinyRun second = gpt2_run(config, data);
    second.state.load({first.state.model_tensors(), {}}, first.state.optimizer_state(),
                      first.state.run_state());
    second.use_loader(0, 1);
    second.steps(3);
    EXPECT_TRUE(at::equal(second.weights(), straight.weights())) << mode;
  }
}

TEST(Gpt2Run, learns_what_can_be_known) {
  const TokenData data(64);
  auto config = gpt2_config();
  config.precision.mode = "fp32";
  TinyRun run = gpt2_run(config, data);
  const auto reports = run.steps(60);
  EXPECT_LT(reports.back().objectives[0].loss, 0.7 * reports.front().objectives[0].loss);
}

}  // namespace
}  // namespace tanren::testing
