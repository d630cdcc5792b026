// Recompute changes memory and time, and no number.
#include "tests/support/block_config.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/blocks/recompute.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/memory/gauge.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/record_function.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string_view>

namespace tanren::testing {
namespace {

RunConfig recompute_config(const std::string& kind, const std::string& mode) {
  auto config = block_config(kind, mode);
  if (test_device() == "cpu") config.memory.limit = "8GiB";  // installs our allocator
  if (kind == "resnet") {
    config.model.size = "resnet18";
    config.model.dropout.reset();
    config.data.train.fields = {"inputs: float[3,32,32] in [-1, 1]", "labels: int[] in [0, 4]"};
    config.batch.global_batch = "4";
    config.batch.microbatch = 2;
  }
  return config;
}

class RecomputeOf : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

TEST_P(RecomputeOf, every_block_leaves_weights_statistics_and_losses_bitwise_as_they_were) {
  for (const char* mode : {"fp32", "bf16"}) {
    auto config = recompute_config(GetParam(), mode);
    TinyRun plain(config);
    config.memory.recompute = {"*"};
    TinyRun again(config);
    const auto expected = plain.steps(3), got = again.steps(3);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].objectives[0].loss, expected[i].objectives[0].loss) << mode;
    }
    EXPECT_TRUE(at::equal(again.weights(), plain.weights())) << mode;
    const TensorMap tensors = plain.state.model_tensors();
    for (const auto& [name, tensor] : again.state.model_tensors()) {
      EXPECT_TRUE(at::equal(tensor, tensors.at(name))) << name;
    }
  }
}

TEST_P(RecomputeOf, every_block_leaves_no_memory_behind) {
  auto config = recompute_config(GetParam(), "fp32");
  config.memory.recompute = {"*"};
  TinyRun run(config);
  run.step();
  const MemoryGauge gauge(run.parts.device);
  const int64_t live = gauge.live();
  run.steps(3);
  EXPECT_EQ(gauge.live(), live);
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeOf,
                         ::testing::Values("mlp", "convnet", "gpt2", "bert", "lstm", "resnet"));

TEST(Recompute, a_pattern_without_a_block_names_those_that_there_are) {
  auto config = recompute_config("gpt2", "fp32");
  config.memory.recompute = {"transformer.h.*", "encoder.*"};
  TinyRun run(config);
  try {
    run.step();
    FAIL() << "a step";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("no block matches 'encoder.*'"), std::string::npos) << text;
    EXPECT_NE(text.find("transformer.h.0, transformer.h.1"), std::string::npos) << text;
  }
}

const at::Tensor* watched_buffer = nullptr;
int num_clones = 0;

// Each buffer is cloned by the update and by the microstep; a block clones only its own (issue 21).
TEST(Recompute, a_block_remembers_the_buffers_of_its_own_module_alone) {
  auto config = recompute_config("convnet", "fp32");
  config.model.channels = {4, 8, 8};
  config.batch.microbatch = 8;
  config.memory.recompute = {"*"};
  TinyRun run(config);
  run.step();
  for (const auto& item : run.state.task.module->named_buffers()) {
    watched_buffer = &item.value();
    num_clones = 0;
    const auto before = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
      const bool clones = std::string_view(call.name()) == "aten::clone";
      if (clones && call.inputs()[0].toTensor().is_same(*watched_buffer)) ++num_clones;
      return nullptr;
    };
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(before).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    run.step();
    at::removeCallback(handle);
    const bool in_block = item.key().rfind("stages.", 0) == 0;
    EXPECT_EQ(num_clones, in_block ? 3 : 2) << item.key();
  }
}

int num_products = 0;

TEST(Recompute, the_last_product_of_a_gpts_block_is_not_computed_twice) {
  for (const char* mode : {"fp32", "bf16"}) {
    auto config = recompute_config("gpt2", mode);
    config.batch.microbatch = 4;
    config.batch.global_batch = "4";
    std::array<int, 2> products = {};
    for (const bool again : {false, true}) {
      if (again) config.memory.recompute = {"transformer.h.*"};
      TinyRun run(config);
      run.step();
      num_products = 0;
      const auto before = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        return nullptr;
      };
      const auto after = [](const at::RecordFunction& call, at::ObserverContext*) {
        const bool ended = !call.outputs().empty();
        if (ended && std::string_view(call.name()) == "aten::addmm") ++num_products;
      };
      const auto handle =
          at::addThreadLocalCallback(at::RecordFunctionCallback(before, after).needsOutputs(true));
      run.step();
      at::removeCallback(handle);
      products.at(again ? 1 : 0) = num_products;
    }
    // Four per block; autocast calls each twice.
    const int each = std::string(mode) == "bf16" ? 2 : 1;
    const auto blocks = static_cast<int>(config.model.num_layers);
    EXPECT_EQ(products[0], each * 4 * blocks) << mode;
    EXPECT_EQ(products[1], each * (4 + 3) * blocks) << mode;
  }
}

// Bytes that a forward keeps for its backward.
int64_t kept_with_recompute(TinyRun& run, const std::vector<std::string>& patterns) {
  const Batch batch = run.loader->next().local;
  const RandomScope random(1, 1, batch.ids);
  const int64_t before = cpu_memory_stats().live_bytes;
  std::optional<RecomputeScope> recompute;
  if (!patterns.empty()) recompute.emplace(patterns, std::vector<at::Tensor>{});
  const Terms terms = run.state.phases[0].spec.forward(batch);
  return cpu_memory_stats().live_bytes - before;
}

TEST(Recompute, of_a_gpt_of_12_layers_keeps_at_most_a_quarter) {
  auto config = recompute_config("gpt2", "fp32");
  config.model.num_layers = 12;
  config.model.hidden_size = 64;
  config.data.train.fields = {"inputs: int[64] in [0, 49]", "labels: int[64] in [0, 49]"};
  TinyRun run(config);
  run.step();
  const int64_t all = kept_with_recompute(run, {});
  const int64_t few = kept_with_recompute(run, {"transformer.h.*"});
  std::printf("GPT of 12 layers: a forward keeps %.2f MB, recomputing its blocks %.2f MB\n",
              static_cast<double>(all) / 1e6, static_cast<double>(few) / 1e6);
  EXPECT_LE(few * 4, all);
  uninstall_cpu_allocator();
}

}  // namespace
}  // namespace tanren::testing
