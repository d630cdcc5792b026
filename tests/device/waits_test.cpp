// The host waits for a device once a step, to read the step's numbers. The simulated device counts
// the waits.
#include "tests/support/accelerator/accelerator.h"
#include "tests/support/block_config.h"
#include "tests/support/eventful.h"

#include "tanren/base/testing.h"
#include "tanren/config/kinds.h"
#include "tanren/train/evaluate.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

namespace tanren::testing {
namespace {

class Waits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!sim::installed()) GTEST_SKIP() << "only the simulated device counts waits";
  }
};

// Runs `work` and expects `expected` waits. The failure message names their callers.
void expect_waits(int64_t expected, const std::string& what, const std::function<void()>& work) {
  sim::take_waits();
  const int64_t before = sim::counts().waits();
  work();
  const int64_t waits = sim::counts().waits() - before;
  std::string callers;
  for (const auto& [caller, count] : sim::take_waits()) {
    callers += "  " + caller + " × " + std::to_string(count);
  }
  EXPECT_EQ(waits, expected) << what << ":" << callers;
}

void expect_one_wait(const RunConfig& config, const std::string& what,
                     const std::function<void(TinyRun&)>& change = {}) {
  TinyRun run(config);
  if (change) change(run);
  run.step();
  const GlobalBatch batch = run.loader->next();
  expect_waits(1, what, [&] { run.step(batch); });
}

TEST_F(Waits, of_a_step_are_one_for_every_kind_of_model_and_precision) {
  for (const char* kind : {"mlp", "convnet", "gpt2", "bert", "lstm"}) {
    for (const char* mode : {"fp64", "fp32", "bf16", "fp16"}) {
      expect_one_wait(block_config(kind, mode), std::string(kind) + " " + mode);
    }
  }
}

TEST_F(Waits, of_a_step_are_one_for_every_optimizer_and_state) {
  for (const OptimizerKind& optimizer : optimizer_kinds()) {
    auto config = block_config("mlp", "fp32");
    config.optimizer.kind = optimizer.name;
    expect_one_wait(config, std::string(optimizer.name));
  }
  for (const char* state : {"8bit", "bf16"}) {
    auto config = block_config("gpt2", "fp32");
    config.model.hidden_size = 64;
    config.optimizer.state = state;
    expect_one_wait(config, std::string("adamw ") + state);
  }
  auto config = block_config("mlp", "fp32");
  config.clip.norm = 0.1;
  config.clip.value = 0.01;
  config.average.kind = "ema";
  config.precision.report_flush = true;
  expect_one_wait(config, "clipped, averaged, and flushes reported");
}

TEST_F(Waits, of_a_step_are_one_with_recomputed_and_offloaded_blocks) {
  for (const char* kind : {"mlp", "convnet", "gpt2", "bert", "lstm"}) {
    expect_one_wait(block_config(kind, "bf16"), std::string(kind) + " recomputed",
                    [](TinyRun& run) { run.parts.plan.memory.recompute = {"*"}; });
    expect_one_wait(block_config(kind, "bf16"), std::string(kind) + " offloaded", [](TinyRun& run) {
      run.parts.plan.memory.offload = {"*"};
      run.parts.plan.memory.offload_bytes = 0;
    });
  }
}

TEST_F(Waits, of_a_step_do_not_grow_with_microsteps) {
  auto config = block_config("gpt2", "fp32");
  config.batch.microbatch = 1;
  expect_one_wait(config, "8 microsteps");
}

TEST_F(Waits, of_an_evaluation_are_at_most_two) {
  for (const char* kind : {"mlp", "convnet", "gpt2", "bert", "lstm"}) {
    auto config = block_config(kind, "fp32");
    config.evaluate.metrics = {"accuracy"};
    TinyRun run(config);
    run.step();
    evaluate(run.state, run.parts, *run.dataset);
    sim::take_waits();
    const int64_t before = sim::counts().waits();
    evaluate(run.state, run.parts, *run.dataset);
    const int64_t waits = sim::counts().waits() - before;
    std::string callers;
    for (const auto& [caller, count] : sim::take_waits()) {
      callers += "  " + caller + " × " + std::to_string(count);
    }
    EXPECT_LE(waits, 2) << kind << ":" << callers;
  }
}

// Model, optimizer and averages: one staged copy for each file, not one for each tensor.
TEST_F(Waits, of_a_checkpoint_are_one_for_each_file) {
  auto config = block_config("gpt2", "fp32");
  config.average.kind = "ema";
  TinyRun run(config);
  run.step();
  const TemporaryFolder folder;
  const LoopInputs inputs{.train = *run.dataset, .checkpoints = folder.path()};
  expect_waits(3, "a checkpoint", [&] { save_checkpoint(run.state, run.parts, inputs); });
  expect_stored(run.state, folder.path());
}

}  // namespace
}  // namespace tanren::testing
