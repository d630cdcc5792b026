// A device trains as the CPU does: every kind of model with every optimizer, in every precision.
#include "tests/support/block_config.h"

#include "tanren/blocks/block.h"
#include "tanren/config/kinds.h"
#include "tanren/data/device_transfer.h"
#include "tanren/train/batch_stream.h"
#include "tanren/train/train_loop.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

namespace tanren::testing {
namespace {

constexpr const char* kKinds[] = {"mlp", "convnet", "gpt2", "bert", "lstm"};

// The gradients of all parameters, each in its logical order, because flat gradients are in the
// parameters' memory orders.
at::Tensor gradients_of(const TinyRun& run) {
  std::vector<at::Tensor> all;
  for (const auto& p : run.state.task.module->parameters()) {
    if (p.grad().defined()) all.push_back(p.grad().flatten());
  }
  return at::cat(all);
}

RunConfig on_cpu(RunConfig config) {
  config.run.device = "cpu";
  return config;
}

class DeviceKind : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceKind, ::testing::ValuesIn(kKinds));

TEST_P(DeviceKind, trains_as_the_cpu_with_every_optimizer_in_fp64) {
  double worst = 0;
  for (const OptimizerKind& optimizer : optimizer_kinds()) {
    auto config = block_config(GetParam(), "fp64");
    config.optimizer.kind = optimizer.name;
    if (optimizer.name != "adamw") config.model.dropout = 0;  // masks are most of the kernels
    // Keys' biases have no gradient but rounding errors, of which lion takes the sign.
    const std::string kind = GetParam();
    if (kind == "gpt2") config.model.freeze = {"*.attn.c_attn.bias"};
    if (kind == "bert") config.model.freeze = {"*.self.key.bias"};
    TinyRun device(config), cpu(on_cpu(config));
    device.steps(5);
    cpu.steps(5);
    const double off = relative(device.weights(), cpu.weights());
    worst = std::max(worst, off);
    EXPECT_LT(off, 1e-12) << optimizer.name;
  }
  std::printf("%-8s fp64: weights after 5 steps within %.1e\n", GetParam(), worst);
}

TEST_P(DeviceKind, has_the_cpus_gradients_in_fp32_and_16_bits) {
  // On an H200, cuDNN's LSTM is 2e-6 away in fp32 and its convolutions are 2.6e-2 in bf16.
  const bool cuda = test_device().starts_with("cuda");
  for (const auto& [mode, bound] :
       {std::pair{"fp32", cuda ? 4e-6 : 1e-6}, {"bf16", cuda ? 4e-2 : 2e-2}, {"fp16", 2e-2}}) {
    auto config = block_config(GetParam(), mode);
    config.model.memory_format = "contiguous";  // the CPU alone would choose channels_last
    TinyRun device(config), cpu(on_cpu(config));
    device.step();
    cpu.step();
    const double off = relative(gradients_of(device), gradients_of(cpu));
    std::printf("%-8s %s: gradients within %.1e\n", GetParam(), mode, off);
    EXPECT_LT(off, bound) << mode;
  }
}

TEST_P(DeviceKind, keeps_its_numbers_when_blocks_are_recomputed_or_offloaded) {
  for (const char* mode : {"fp32", "bf16"}) {
    const auto config = block_config(GetParam(), mode);
    TinyRun plain(config), recomputed(config), offloaded(config);
    recomputed.parts.plan.memory.recompute = {"*"};
    offloaded.parts.plan.memory.offload = {"*"};
    offloaded.parts.plan.memory.offload_bytes = 0;
    for (TinyRun* run : {&plain, &recomputed, &offloaded}) run->steps(3);
    EXPECT_TRUE(at::equal(recomputed.weights(), plain.weights())) << mode;
    EXPECT_TRUE(at::equal(offloaded.weights(), plain.weights())) << mode;
  }
}

// The number of casts of fp32 weights that this thread makes in a step. A device's backward runs on
// another thread.
int num_casts(RunConfig config, bool recomputes) {
  static std::atomic<int> casts;
  static std::thread::id host;
  config.batch.microbatch = 2;
  if (recomputes) config.memory.recompute = {"*"};
  TinyRun run(config);
  run.step();
  const GlobalBatch batch = run.loader->next();
  casts = 0;
  host = std::this_thread::get_id();
  const auto before = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
    if (std::this_thread::get_id() != host || call.inputs().empty()) return nullptr;
    if (std::string_view(call.name()) != "aten::_to_copy" || !call.inputs()[0].isTensor()) {
      return nullptr;
    }
    const at::Tensor& from = call.inputs()[0].toTensor();
    if (from.is_leaf() && from.requires_grad() && from.scalar_type() == at::kFloat) ++casts;
    return nullptr;
  };
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(before, nullptr).needsInputs(true));
  run.step(batch);
  at::removeCallback(handle);
  return casts;
}

// The process has one cache of casts: a second pass on the device's thread must not clear it.
TEST(Device, casts_each_weight_once_a_window_although_blocks_are_recomputed) {
  const auto config = block_config("gpt2", "bf16");
  const int plain = num_casts(config, false);
  EXPECT_GT(plain, 0);
  EXPECT_EQ(num_casts(config, true), plain);
}

TEST(Device, keeps_its_numbers_when_threads_load_ahead) {
  const auto config = block_config("gpt2", "fp32");
  TinyRun plain(config), ahead(config);
  ahead.parts.plan.data.workers = 2;
  ahead.parts.plan.data.prefetch = 2;
  BatchStream batches(make_loader(ahead.state, ahead.parts, *ahead.dataset), *ahead.parts.ranks);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(ahead.step(batches.next()).objectives[0].loss, plain.step().objectives[0].loss) << i;
  }
  EXPECT_TRUE(at::equal(ahead.weights(), plain.weights()));
}

// A batch comes on a stream of its own, and may be dropped before the host has waited for anything.
TEST(Device, takes_a_batch_that_is_dropped_while_it_is_used) {
  const DeviceTransfer transfer{at::Device(test_device())};
  at::Tensor sums = at::zeros({1000}, at::TensorOptions(at::kFloat).device(test_device()));
  for (int i = 1; i <= 3; ++i) {
    Batch batch;
    batch.fields.set("inputs", at::full({1000}, static_cast<float>(i)));
    batch.ids = at::arange(1000);
    sums.add_(transfer.receive(transfer.send(batch))["inputs"]);
  }
  EXPECT_TRUE(at::equal(sums.cpu(), at::full({1000}, 6.0F)));
}

// Backward fails after a tensor was copied back to the device and before it is used.
TEST(Device, frees_what_came_back_for_a_backward_that_broke_off) {
  const auto options = at::TensorOptions(at::kFloat).device(test_device());
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 3; ++i) weights.push_back(at::randn({16, 16}, options).requires_grad_());
  at::Tensor x = at::randn({8, 16}, options);
  {
    const OffloadScope offload(
        {.patterns = {"*"}, .device = at::Device(test_device()), .min_bytes = 0, .held = {x}});
    for (size_t i = 0; i < weights.size(); ++i) {
      x = run_block("layers." + std::to_string(i), x, [weight = weights[i]](const at::Tensor& in) {
        return at::gelu(at::linear(in, weight));
      });
      if (i == 1) {
        x.register_hook([](const at::Tensor&) { throw std::runtime_error("broken off"); });
      }
    }
  }
  at::Tensor loss = x.sum();
  EXPECT_THROW(torch::autograd::backward({loss}, {}), std::runtime_error);
}

TEST(Device, packs_optimizer_state_as_the_cpu) {
  for (const char* state : {"8bit", "bf16"}) {
    auto config = block_config("gpt2", "fp32");
    config.model.hidden_size = 64;  // large enough to be packed
    config.optimizer.state = state;
    TinyRun device(config), cpu(on_cpu(config));
    device.steps(5);
    cpu.steps(5);
    EXPECT_LT(relative(device.weights(), cpu.weights()), 1e-3) << state;
  }
}

}  // namespace
}  // namespace tanren::testing
