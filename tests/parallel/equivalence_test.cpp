// N ranks equal one rank: the same weights for every engine, number of ranks, number of microsteps
// and precision, with unequal counts, dropout, tied weights, clipping, frozen parameters and ranks
// without samples.
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace tanren::testing {
namespace {

struct Outcome {
  at::Tensor gradient;  // of the first update
  at::Tensor weights;   // after the last update
  double scale = 0, loss = 0, norm = 0;
  int64_t buckets = 0;
};

// The outcome of `updates` updates on each rank.
std::vector<Outcome> outcomes(const RunConfig& config, const std::string& engine, int world_size,
                              int updates) {
  const TokenData data(38);
  std::vector<Outcome> all(static_cast<size_t>(world_size));
  const auto open_windows = engine == "threads" ? std::make_shared<std::atomic<int>>(0) : nullptr;
  on_engine(engine, world_size, [&](Communicator& comm) {
    RankRun run(config, data, comm, {}, open_windows);
    Outcome& outcome = all[static_cast<size_t>(comm.rank())];
    for (int i = 0; i < updates; ++i) {
      const StepReport report = run.step();
      EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
      if (i == 0) outcome.gradient = run.gradients();
      outcome.loss = report.objectives[0].loss;
      outcome.norm = report.objectives[0].grad_norm;
    }
    outcome.weights = run.weights();
    outcome.scale = run.objective().scaler.scale();
    if (world_size > 1) outcome.buckets = run.state.phases.front().reducer->num_buckets();
  });
  return all;
}

using Combination = std::tuple<const char*, int, int64_t, const char*>;

class EqualRanks : public ::testing::TestWithParam<Combination> {};

TEST_P(EqualRanks, are_one_rank) {
  const auto [engine, world_size, accumulation, mode] = GetParam();
  auto config = ranks_config(mode);
  const int updates = 5;
  static std::map<std::string, Outcome> ones;  // by precision
  Outcome& one = ones[mode];
  if (!one.weights.defined()) one = outcomes(config, "single", 1, updates)[0];
  const int64_t share = (12 + world_size - 1) / world_size;
  config.batch.microbatch = (share + accumulation - 1) / accumulation;
  const auto ranks = outcomes(config, engine, world_size, updates);
  for (const auto& rank : ranks) {
    EXPECT_TRUE(at::equal(rank.weights, ranks[0].weights)) << "ranks differ";
    EXPECT_EQ(rank.scale, one.scale);
    EXPECT_EQ(rank.loss, ranks[0].loss);
    EXPECT_EQ(rank.norm, ranks[0].norm);
  }
  EXPECT_GT(world_size > 1 ? ranks[0].buckets : 4, 3);
  const double gradient = relative(ranks[0].gradient, one.gradient);
  const double weights = relative(ranks[0].weights, one.weights);
  std::printf("%-8s %d ranks, accumulation %ld, %s: gradients %.1e, weights %.1e\n", engine,
              world_size, static_cast<long>(accumulation), mode, gradient, weights);
  const std::string precision = mode;
  if (precision == "fp64") {
    EXPECT_LT(weights, 1e-10);
    EXPECT_NEAR(ranks[0].loss, one.loss, 1e-11);
  }
  // Sums in half precision depend on the order, which differs.
  EXPECT_LT(gradient, precision == "fp64"   ? 1e-12
                      : precision == "fp32" ? 1e-6
                      : precision == "fp16" ? 2e-3
                                            : 1.6e-2);
  const auto again = outcomes(config, engine, world_size, updates);
  EXPECT_TRUE(at::equal(again[0].weights, ranks[0].weights)) << "not the same twice";
}

// The engines take turns: each is tested with every number of ranks and every accumulation, and
// each precision with every accumulation. A single rank uses no engine.
std::vector<Combination> combinations() {
  std::vector<Combination> all;
  int which = 0;
  for (const char* mode : {"fp64", "fp32", "bf16", "fp16"}) {
    for (const int world_size : {1, 2, 3, 4}) {
      for (const int64_t accumulation : {1, 3}) {
        const bool by_gloo = world_size > 1 && (which + world_size + accumulation / 2) % 2 == 1;
        all.emplace_back(by_gloo ? "gloo" : "threads", world_size, accumulation, mode);
      }
    }
    ++which;
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Engines, EqualRanks, ::testing::ValuesIn(combinations()));

TEST(RanksTogether, start_one_reduction_a_bucket_and_step_whatever_the_accumulation) {
  auto config = ranks_config("fp32");
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 25;
  const TokenData data(38);
  for (const int64_t microbatch : {6, 2}) {
    config.batch.microbatch = microbatch;
    on_ranks(2, [&](Communicator& comm) {
      RankRun run(config, data, comm);
      run.step();
      const auto& reducer = *run.state.phases.front().reducer;
      EXPECT_EQ(reducer.num_buckets(), 1);
      EXPECT_EQ(reducer.num_reductions(), 1);
      run.step();
      EXPECT_EQ(reducer.num_reductions(), 2);
    });
  }
}

// Only sample 5 overflows at this scale, so only one rank sees the overflow.
Task task_that_overflows() {
  struct Net : torch::nn::Module {
    Net() { weight = register_parameter("weight", at::full({12}, 0.1)); }
    at::Tensor weight;
  };
  auto net = std::make_shared<Net>();
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net](const Batch& batch) -> Terms {
    const auto large = batch.ids.eq(5).to(at::kFloat).mul(100).add(1).unsqueeze(1);
    const auto product =
        (batch["inputs"].to(at::kHalf) * large.to(at::kHalf)) * net->weight.to(at::kHalf);
    return {{"sum", product.to(at::kFloat).sum(), "samples"}};
  };
  task.phases = {phase};
  return task;
}

TEST(RanksTogether, an_overflow_on_one_rank_makes_all_skip_and_leaves_one_scale) {
  const TokenData data(12);
  auto config = ranks_config("fp16");
  config.precision.initial_scale = "65536";
  config.data.shuffle = false;
  config.model.freeze = {};
  config.optimizer.kind = "sgd";
  std::vector<at::Tensor> weights(3);
  on_ranks(3, [&](Communicator& comm) {
    RankRun run(config, data, comm, task_that_overflows);
    const at::Tensor before = run.weights();
    int skipped = 0;
    for (int i = 0; i < 14; ++i) {
      const StepReport report = run.step();
      if (report.objectives[0].verdict.cause != Cause::overflow) continue;
      ++skipped;
      EXPECT_TRUE(skipped != i + 1 || at::equal(run.weights(), before));
    }
    EXPECT_GT(skipped, 0);
    EXPECT_EQ(run.objective().scaler.scale(), 65536.0 / (1 << skipped));
    EXPECT_EQ(run.state.step(), 14 - skipped);
    weights[static_cast<size_t>(comm.rank())] = run.weights();
  });
  EXPECT_TRUE(at::equal(weights[0], weights[1]) && at::equal(weights[0], weights[2]));
}

TEST(RanksTogether, a_nan_on_one_rank_is_skipped_by_all_and_the_rank_is_named) {
  const TokenData data(12);
  auto config = ranks_config("fp32");
  config.data.shuffle = false;
  config.model.freeze = {};
  config.guard.nan_loss = "skip";
  const auto make_task = [] {
    Task task = task_that_overflows();
    task.phases[0].forward = [inner = task.phases[0].forward](const Batch& batch) {
      Terms terms = inner(batch);
      if (batch.ids.eq(5).any().item<bool>()) terms[0].sum = terms[0].sum / 0.0 * 0.0;
      return terms;
    };
    return task;
  };
  on_ranks(3, [&](Communicator& comm) {
    RankRun run(config, data, comm, make_task);
    const at::Tensor before = run.weights();
    const StepReport report = run.step();
    EXPECT_EQ(report.objectives[0].verdict.action, Action::skip);
    EXPECT_EQ(report.culprit.rfind("rank ", 0), 0U) << report.culprit;
    EXPECT_NE(report.culprit.find("rank 1: microbatch 0"), std::string::npos) << report.culprit;
    EXPECT_TRUE(at::equal(run.weights(), before));
  });
}

// The samples of one rank do not use `second`; no samples use `unused`.
TEST(RanksTogether, a_parameter_that_some_rank_reaches_is_updated_on_all_and_others_on_none) {
  struct Net : torch::nn::Module {
    Net() {
      first = register_parameter("first", at::ones({12}));
      second = register_parameter("second", at::ones({12}));
      unused = register_parameter("unused", at::ones({3}));
    }
    at::Tensor first, second, unused;
  };
  const auto make_task = [] {
    auto net = std::make_shared<Net>();
    Task task;
    task.module = net;
    PhaseSpec phase;
    phase.forward = [net](const Batch& batch) -> Terms {
      at::Tensor product = batch["inputs"].to(at::kDouble) * net->first;
      if (batch.ids.ge(6).all().item<bool>()) product = product * net->second;
      return {{"sum", product.sum(), "samples"}};
    };
    task.phases = {phase};
    return task;
  };
  const TokenData data(12);
  auto config = ranks_config("fp64");
  config.data.shuffle = false;
  config.model.freeze = {};
  config.optimizer.weight_decay = 0.1;
  on_ranks(2, [&](Communicator& comm) {
    RankRun run(config, data, comm, make_task);
    run.step();
    const auto named = run.state.task.module->named_parameters();
    EXPECT_FALSE(at::equal(named["second"], at::ones({12}, at::kDouble)));
    EXPECT_TRUE(at::equal(named["unused"], at::ones({3}, at::kDouble)));
  });
}

TEST(RanksTogether, batch_norms_statistics_become_the_mean_or_the_first_ranks) {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.batch.global_batch = "8";
  const auto data = open_dataset(config.data.train, "data.train");
  for (const char* policy : {"mean", "first"}) {
    config.parallel.buffers = policy;
    std::vector<at::Tensor> means(2);
    on_ranks(2, [&](Communicator& comm) {
      RankRun run(config, *data, comm);
      run.step();
      for (const auto& item : run.state.task.module->named_buffers()) {
        if (item.key().find("running_mean") == std::string::npos) continue;
        means[static_cast<size_t>(comm.rank())] = item.value().clone();
        break;
      }
    });
    ASSERT_TRUE(means[0].defined());
    EXPECT_TRUE(at::equal(means[0], means[1])) << policy;
    EXPECT_GT(means[0].abs().max().item<double>(), 0);
  }
}

}  // namespace
}  // namespace tanren::testing
