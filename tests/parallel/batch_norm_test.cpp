// parallel.buffers = "synchronised": models with batch norm train on N ranks as on one. N ranks
// with microbatches of m samples equal one rank with microbatches of N × m that takes the samples
// in the order in which the ranks process them: the first m samples of every rank's share, then the
// next m, …
#include "tests/support/loop_run.h"
#include "tests/support/rank_run.h"

#include "tanren/base/error.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/losses.h"
#include "tanren/model/resnet.h"
#include "tanren/model/supervised.h"
#include "tanren/ops/synchronised_norm.h"
#include "tanren/train/on_ranks.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace tanren::testing {
namespace {

// 38 samples in batches of 11: shares are unequal, and the last batch has 5.
RunConfig norm_config(const std::string& mode) {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.model.dropout = 0.2;
  config.data.train.samples = 38;
  config.batch.global_batch = "11";
  config.precision.mode = mode;
  config.parallel.buffers = "synchronised";
  return config;
}

struct Trained {
  at::Tensor gradient;  // of the first update
  at::Tensor weights, buffers;
  double loss = 0;
  int64_t microsteps = 0;  // in the last update
};

at::Tensor flat_buffers(const RunState& state) {
  std::vector<at::Tensor> all;
  for (const auto& buffer : state.task.module->buffers()) {
    all.push_back(buffer.to(at::kDouble).flatten());
  }
  return at::cat(all);
}

using MakeTask = std::function<Task()>;

std::vector<Trained> trained(const RunConfig& config, const std::string& engine, int world_size,
                             int updates, const MakeTask& make_task = {}) {
  const auto data = open_dataset(config.data.train, "data.train");
  std::vector<Trained> all(static_cast<size_t>(world_size));
  const auto open_windows = engine == "threads" ? std::make_shared<std::atomic<int>>(0) : nullptr;
  on_engine(engine, world_size, [&](Communicator& comm) {
    RankRun run(config, *data, comm, make_task, open_windows);
    Trained& result = all[static_cast<size_t>(comm.rank())];
    for (int i = 0; i < updates; ++i) {
      const StepReport report = run.step();
      if (i == 0 && config.parallel.zero == 0) result.gradient = run.gradients();
      result.loss = report.objectives[0].loss;
      result.microsteps = report.microsteps;
    }
    result.weights = run.weights();
    result.buffers = flat_buffers(run.state);
  });
  for (const Trained& rank : all) {
    EXPECT_TRUE(at::equal(rank.weights, all[0].weights)) << "ranks differ";
    EXPECT_TRUE(at::equal(rank.buffers, all[0].buffers)) << "ranks differ";
    EXPECT_EQ(rank.microsteps, all[0].microsteps);
  }
  return all;
}

Batch as_ranks_see(const Batch& batch, int64_t ranks, int64_t microbatch) {
  const int64_t all = batch.size();
  std::vector<int64_t> order;
  for (int64_t begin = 0; begin < all; begin += microbatch) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t first = rank * all / ranks + begin, last = (rank + 1) * all / ranks;
      for (int64_t i = first; i < std::min(first + microbatch, last); ++i) order.push_back(i);
    }
  }
  const at::Tensor index = at::tensor(order, at::kLong);
  Batch seen;
  seen.ids = batch.ids.index_select(0, index);
  for (const auto& [name, field] : batch.fields)
    seen.fields.set(name, field.index_select(0, index));
  return seen;
}

// Trains one rank on the same batches in that order, in microbatches of `ranks` × `microbatch`.
Trained trained_alone(RunConfig config, int64_t ranks, int64_t microbatch, int updates,
                      const MakeTask& make_task = {}) {
  const auto data = open_dataset(config.data.train, "data.train");
  config.batch.microbatch = ranks * microbatch;
  const auto alone = single_communicator();
  RankRun run(config, *data, *alone, make_task);
  Trained result;
  for (int i = 0; i < updates; ++i) {
    GlobalBatch batch = run.batches->next();
    batch.local = as_ranks_see(batch.local, ranks, microbatch);
    const auto report = update(run.state, run.parts, batch);
    if (i == 0) result.gradient = run.gradients();
    result.loss = report->objectives[0].loss;
    result.microsteps = report->microsteps;
  }
  result.weights = run.weights();
  result.buffers = flat_buffers(run.state);
  return result;
}

using NormCombination = std::tuple<const char*, int, int64_t>;

class NormOverRanks : public ::testing::TestWithParam<NormCombination> {};

TEST_P(NormOverRanks, trains_as_on_one_rank) {
  const auto [engine, world_size, accumulation] = GetParam();
  auto config = norm_config("fp64");
  const int64_t share = (11 + world_size - 1) / world_size;
  const int64_t microbatch = (share + accumulation - 1) / accumulation;
  if (accumulation > 1) config.batch.microbatch = microbatch;
  const int updates = 5;
  const auto ranks = trained(config, engine, world_size, updates);
  const Trained one = trained_alone(config, world_size, microbatch, updates);
  const double weights = relative(ranks[0].weights, one.weights);
  const double buffers = relative(ranks[0].buffers, one.buffers);
  std::printf("%-8s %d ranks, accumulation %ld: weights %.1e, buffers %.1e\n", engine, world_size,
              static_cast<long>(accumulation), weights, buffers);
  EXPECT_EQ(ranks[0].microsteps, one.microsteps);
  EXPECT_LT(relative(ranks[0].gradient, one.gradient), 1e-12);
  EXPECT_LT(weights, 1e-10);
  EXPECT_LT(buffers, 1e-10);
  EXPECT_NEAR(ranks[0].loss, one.loss, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(Engines, NormOverRanks,
                         ::testing::Combine(::testing::Values("threads", "gloo"),
                                            ::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 3)));

TEST(NormOverRanksOf, a_whole_batch_needs_no_order) {
  auto config = norm_config("fp64");
  const Trained one = trained(config, "single", 1, 5)[0];
  EXPECT_EQ(one.microsteps, 1);
  for (const int64_t zero : {0, 1, 2}) {
    config.parallel.zero = zero;
    const auto ranks = trained(config, "threads", 3, 5);
    EXPECT_LT(relative(ranks[0].weights, one.weights), 1e-10) << zero;
    EXPECT_LT(relative(ranks[0].buffers, one.buffers), 1e-10) << zero;
  }
}

// Otherwise the tests above would prove nothing.
TEST(NormOverRanksOf, the_mean_of_statistics_is_another_computation) {
  auto config = norm_config("fp64");
  const Trained one = trained(config, "single", 1, 5)[0];
  config.parallel.buffers = "mean";
  const auto ranks = trained(config, "threads", 3, 5);
  EXPECT_GT(relative(ranks[0].gradient, one.gradient), 1e-3);
  EXPECT_GT(relative(ranks[0].weights, one.weights), 1e-4);
}

TEST(NormOverRanksOf, fewer_samples_than_ranks_leaves_some_with_none) {
  auto config = norm_config("fp64");
  config.batch.global_batch = "2";
  const Trained one = trained(config, "single", 1, 5)[0];
  const auto ranks = trained(config, "threads", 4, 5);
  EXPECT_LT(relative(ranks[0].weights, one.weights), 1e-10);
  EXPECT_LT(relative(ranks[0].buffers, one.buffers), 1e-10);
}

// In channels-last: our own kernels, and torch's on ranks without samples.
TEST(NormOverRanksOf, lower_precisions_agree_to_their_rounding) {
  for (const auto& [mode, bound] :
       {std::pair{"fp32", 1e-5}, std::pair{"fp16", 1e-2}, std::pair{"bf16", 0.05}}) {
    auto config = norm_config(mode);
    config.model.memory_format = "channels_last";
    config.precision.initial_scale = "auto";  // fp16: searched before the first update
    for (const char* global_batch : {"11", "2"}) {
      config.batch.global_batch = global_batch;
      const Trained one = trained(config, "single", 1, 1)[0];
      const Trained ranks = trained(config, "threads", 3, 1)[0];
      const double gradient = relative(ranks.gradient, one.gradient);
      std::printf("%s, batches of %s: gradients %.1e\n", mode, global_batch, gradient);
      EXPECT_LT(gradient, bound);
      EXPECT_LT(relative(ranks.buffers, one.buffers), bound);
    }
  }
}

TEST(NormOverRanksOf, resnet_trains_alike_with_ranks_that_have_nothing) {
  auto config = norm_config("fp64");
  config.model.kind = "resnet";
  config.model.dropout.reset();
  // Images of 32 pixels would leave two values per channel, whose difference is only rounding.
  config.data.train.fields = {"inputs: float[3,64,64] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.batch.global_batch = "2";
  const auto narrow = [&config, info = open_dataset(config.data.train, "data.train")->info()] {
    at::manual_seed(7);
    const ResnetShape shape{.blocks = {1, 1, 1, 0}, .outputs = 5};
    return supervised(std::make_shared<Resnet>(shape), config.model, info);
  };
  const Trained one = trained(config, "single", 1, 1, narrow)[0];
  const auto ranks = trained(config, "threads", 3, 1, narrow);
  EXPECT_LT(relative(ranks[0].gradient, one.gradient), 1e-10);
  EXPECT_LT(relative(ranks[0].buffers, one.buffers), 1e-10);
}

Task task_of_torchs_norm() {
  struct Net : torch::nn::Module {
    Net() {
      norm = register_module("norm", torch::nn::BatchNorm1d(3));
      weight = register_parameter("weight", at::randn({4, 15}) * 0.3);
    }
    at::Tensor forward(const at::Tensor& x) {
      return at::linear(at::tanh(norm->forward(x.squeeze(1))).flatten(1), weight);
    }
    torch::nn::BatchNorm1d norm{nullptr};
    at::Tensor weight;
  };
  at::manual_seed(5);
  auto net = std::make_shared<Net>();
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net](const Batch& batch) -> Terms {
    const at::Tensor inputs = batch["inputs"].to(net->weight.scalar_type());
    return {cross_entropy(net->forward(inputs), batch["labels"])};
  };
  task.phases = {phase};
  return task;
}

TEST(NormOverRanksOf, torchs_module_in_a_task_of_ones_own_needs_no_change) {
  auto config = norm_config("fp64");
  config.data.train.fields = {"inputs: float[1,3,5] in [-1, 1]", "labels: int[] in [0, 3]"};
  for (const char* global_batch : {"11", "2"}) {
    config.batch.global_batch = global_batch;
    const Trained one = trained(config, "single", 1, 5, task_of_torchs_norm)[0];
    const auto ranks = trained(config, "threads", 3, 5, task_of_torchs_norm);
    EXPECT_LT(relative(ranks[0].weights, one.weights), 1e-10);
    EXPECT_LT(relative(ranks[0].buffers, one.buffers), 1e-10);
  }
}

// Simulates a second rank with the same samples as this one, so that one device is enough.
void expect_twins_to_be_one_rank_with_both(at::Device device) {
  install_synchronised_norm();
  const auto leaf = [&](const at::Tensor& t) { return t.to(device).clone().requires_grad_(); };
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 3, 5}), seeds = at::randn({4, 3, 5}), weight = at::randn({3});
  const auto normed = [&](const at::Tensor& in, const at::Tensor& scale) {
    return at::batch_norm(in, scale, {}, {}, {}, true, 0.1, 1e-5, false);
  };
  const at::Tensor both = leaf(at::cat({x, x})), both_weight = leaf(weight);
  const at::Tensor expected = normed(both, both_weight);
  const auto expected_gradients =
      torch::autograd::grad({expected}, {both, both_weight}, {at::cat({seeds, seeds}).to(device)});
  const at::Tensor own = leaf(x), own_weight = leaf(weight);
  at::Tensor y;
  {
    const AcrossRanksScope scope(std::make_shared<const GatherRows>([](const at::Tensor& row) {
      return at::stack({row, row});
    }));
    y = normed(own, own_weight);
  }
  const auto gradients = torch::autograd::grad({y}, {own, own_weight}, {seeds.to(device)});
  EXPECT_LT(relative(y.detach(), expected.detach().slice(0, 0, 4)), 1e-6);
  EXPECT_LT(relative(gradients[0], expected_gradients[0].slice(0, 0, 4)), 1e-5);
  EXPECT_LT(relative(gradients[1] * 2, expected_gradients[1]), 1e-5);
}

TEST(NormOverRanksOf, a_rank_and_its_twin_are_one_rank_with_both) {
  expect_twins_to_be_one_rank_with_both(at::Device(test_device()));
}

TEST(NormOverRanksOf, recomputed_blocks_are_bitwise_those_that_are_kept) {
  auto config = norm_config("fp64");
  config.batch.microbatch = 2;
  const auto kept = trained(config, "threads", 2, 3);
  config.memory.recompute = {"*"};
  const auto recomputed = trained(config, "threads", 2, 3);
  EXPECT_TRUE(at::equal(recomputed[0].weights, kept[0].weights));
  EXPECT_TRUE(at::equal(recomputed[0].buffers, kept[0].buffers));
}

TEST(NormOverRanksOf, ranks_that_would_cut_otherwise_do_not_start) {
  auto config = norm_config("fp64");
  const auto data = open_dataset(config.data.train, "data.train");
  std::string message;
  std::mutex mutex;
  on_ranks(2, [&](Communicator& comm) {
    auto own = config;
    own.batch.microbatch = 2 + comm.rank();
    RankRun run(own, *data, comm);
    try {
      begin_alike(run.state, run.parts);
    } catch (const ConfigError& error) {
      const std::lock_guard lock(mutex);
      message = error.what();
    }
  });
  EXPECT_NE(message.find("rank 1 has batch.microbatch 3, rank 0 has batch.microbatch 2"),
            std::string::npos)
      << message;
}

class NormMemory : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

TEST_F(NormMemory, out_of_memory_on_one_rank_ends_all_and_names_the_key) {
  auto config = norm_config("fp64");
  config.memory.limit = "8GiB";  // installs our allocator
  const auto data = open_dataset(config.data.train, "data.train");
  int ended = 0;
  for (int64_t index = 10; index < 400; index += 30) {
    std::string message, others;
    std::mutex mutex;
    const auto work = [&](Communicator& comm) {
      RankRun run(config, *data, comm);
      run.step();
      const GlobalBatch batch = run.batches->next();
      if (comm.rank() == 1) fail_cpu_allocation(index);
      try {
        update(run.state, run.parts, batch);
        if (comm.rank() == 1) fail_cpu_allocation(INT64_MAX);
      } catch (const MemoryError& error) {
        fail_cpu_allocation(INT64_MAX);
        const std::lock_guard lock(mutex);
        message = error.what();
        throw;
      } catch (const CommError& error) {
        const std::lock_guard lock(mutex);
        others = error.what();
        throw;
      }
    };
    try {
      on_ranks(2, work);  // the reserve absorbs failures outside of microsteps
    } catch (const MemoryError&) {
      ++ended;
      EXPECT_NE(message.find("[memory] out of memory with 6 samples"), std::string::npos)
          << message;
      EXPECT_NE(message.find("(parallel.buffers = \"synchronised\"); lower batch.microbatch"),
                std::string::npos)
          << message;
      EXPECT_NE(others.find("rank 1: [memory] out of memory"), std::string::npos) << others;
    }
  }
  EXPECT_GT(ended, 3);
}

TEST_F(Loop, with_synchronised_batch_norm_writes_the_log_of_one_rank) {
  const auto config_of = [](int64_t replicas) {
    auto config = looped_config(replicas);
    config.model.kind = "convnet";
    config.model.hidden = ModelOptions().hidden;
    config.model.channels = {4, 8};
    config.model.norm = "batch";
    config.parallel.buffers = "synchronised";
    return config;
  };
  go(config_of(1), "1");
  go(config_of(3), "3");
  EXPECT_EQ(plan_.parallel.buffers, RankBuffers::synchronised);
  expect_same("1", "3");
}

}  // namespace
}  // namespace tanren::testing
