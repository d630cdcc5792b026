// Offload changes where activations wait for backward, and no number. The plan refuses it on the
// CPU, so these tests set the plan's result by hand, and the copies go from host to host. With
// TANREN_TEST_DEVICE=cuda:0 they go over the bus.
#include "tests/support/block_config.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/random.h"
#include "tanren/base/testing.h"
#include "tanren/blocks/offload.h"
#include "tanren/forecast/predict.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/memory/gauge.h"
#include "tanren/train/prepared.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace tanren::testing {
namespace {

RunConfig offload_config(const std::string& kind, const std::string& mode) {
  auto config = block_config(kind, mode);
  if (test_device() == "cpu") config.memory.limit = "8GiB";  // installs our allocator
  return config;
}

void offload_all(TinyRun& run) {
  run.parts.plan.memory.offload = {"*"};
  run.parts.plan.memory.offload_bytes = 0;
}

class OffloadOf : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

TEST_P(OffloadOf, every_block_leaves_weights_and_losses_bitwise_as_they_were) {
  for (const char* mode : {"fp32", "bf16"}) {
    const auto config = offload_config(GetParam(), mode);
    TinyRun plain(config), moved(config);
    offload_all(moved);
    const auto expected = plain.steps(3), got = moved.steps(3);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].objectives[0].loss, expected[i].objectives[0].loss) << mode;
    }
    EXPECT_TRUE(at::equal(moved.weights(), plain.weights())) << mode;
  }
}

TEST_P(OffloadOf, every_block_leaves_no_memory_behind) {
  TinyRun run(offload_config(GetParam(), "fp32"));
  offload_all(run);
  run.step();
  const MemoryGauge gauge(run.parts.device);
  const int64_t live = gauge.live();
  run.steps(3);
  EXPECT_EQ(gauge.live(), live);
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadOf,
                         ::testing::Values("mlp", "convnet", "gpt2", "bert", "lstm"));

TEST(Offload, a_pattern_without_a_block_names_those_that_there_are) {
  TinyRun run(offload_config("gpt2", "fp32"));
  run.parts.plan.memory.offload = {"encoder.*"};
  const std::string text = error_of<ConfigError>([&] { run.step(); });
  TANREN_EXPECT_CONTAINS(text, "memory.offload: no block matches 'encoder.*'");
  TANREN_EXPECT_CONTAINS(text, "transformer.h.0, transformer.h.1");
}

TEST(Offload, of_no_block_is_refused_by_the_plans_dry_run) {
  const auto config = offload_config("gpt2", "fp32");
  const TinyRun run(config);
  const StepPredictor predictor([&] { return build_task(config, ModelRegistry(), *run.dataset); },
                                *run.dataset);
  Plan plan = run.parts.plan;
  plan.memory.offload = {"encoder.*"};
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { predictor.step(plan, 0); }),
                         "memory.offload: no block matches 'encoder.*'");
  uninstall_cpu_allocator();
}

RunConfig deep_config() {
  auto config = offload_config("gpt2", "fp32");
  config.model.num_layers = 12;
  config.model.hidden_size = 64;
  config.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
  return config;
}

// Bytes that a forward keeps on the device for its backward. On the CPU, the offloaded copies count
// as another kind of memory.
int64_t kept_by_forward(TinyRun& run, const std::vector<std::string>& patterns) {
  const Batch batch = prepared(run.loader->next().local, run.state.task, run.parts);
  const RandomScope random(1, 1, batch.ids);
  const MemoryScope memory(MemoryKind::activations);
  const auto activations = [&] {
    if (!run.parts.device.is_cpu()) return MemoryGauge(run.parts.device).live();
    return cpu_memory_by_kind()[static_cast<size_t>(MemoryKind::activations)];
  };
  const int64_t before = activations();
  OffloadOptions options{.patterns = patterns,
                         .device = run.parts.device,
                         .min_bytes = 0,
                         .held = run.state.task.module->parameters()};
  for (const auto& [name, field] : batch.fields) options.held.push_back(field);
  const OffloadScope offload(options);
  const Terms terms = run.state.phases[0].spec.forward(batch);
  return activations() - before;
}

TEST(Offload, of_a_gpt_of_12_layers_keeps_at_most_a_tenth_on_the_device) {
  TinyRun run(deep_config());
  run.step();
  const int64_t all = kept_by_forward(run, {});
  const int64_t few = kept_by_forward(run, {"transformer.*"});
  std::printf("GPT of 12 layers: a forward keeps %.2f MB, offloading its blocks %.2f MB\n",
              static_cast<double>(all) / 1e6, static_cast<double>(few) / 1e6);
  EXPECT_LE(few * 10, all);
  uninstall_cpu_allocator();
}

TEST(Offload, is_predicted_to_need_less_of_the_device) {
  auto config = deep_config();
  config.batch.microbatch = 8;
  const TinyRun run(config);
  const StepPredictor predictor([&] { return build_task(config, ModelRegistry(), *run.dataset); },
                                *run.dataset);
  Plan plan = run.parts.plan;
  const int64_t all = predictor.step(plan, 0).peak_bytes;
  plan.memory.offload = {"*"};
  plan.memory.offload_bytes = 0;
  const int64_t few = predictor.step(plan, 0).peak_bytes;
  const int64_t workspaces =
      2 * plan.device.workspace_bytes;  // of CUDA's libraries, in two threads
  EXPECT_LT(few - workspaces, (all - workspaces) / 2);
  uninstall_cpu_allocator();
}

}  // namespace
}  // namespace tanren::testing
