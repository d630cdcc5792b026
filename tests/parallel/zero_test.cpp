// Ranks with sharded optimizer state and gradients equal one rank: the same weights, gradients,
// norms and scales on every engine and number of ranks. Each rank holds fewer bytes, and running
// out of memory on one of them costs only time.
#include "tests/support/rank_injection.h"
#include "tests/support/token_data.h"

#include "tanren/forecast/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

namespace tanren::testing {
namespace {

RunConfig shared_config(const std::string& mode, int64_t zero) {
  auto config = ranks_config(mode);
  config.parallel.zero = zero;
  return config;
}

struct Outcome {
  at::Tensor gradient;  // in the first update, joined from all ranks' parts
  at::Tensor weights;   // after the last update
  double scale = 0, loss = 0, norm = 0;
};

// Copies the gradients that this rank owns into `row`, which holds those of all parameters in turn.
void put_owned(RankRun& run, const at::Tensor& row) {
  const Gradients& gradients = run.objective().gradients;
  if (!gradients.sharding().on()) {
    if (run.parts.ranks->world().is_first()) at::Tensor(row).copy_(run.gradients());
    return;
  }
  std::vector<int64_t> first{0};
  for (const auto& p : gradients.parameters()) first.push_back(first.back() + p.numel());
  for (const Slice& slice : gradients.slices()) {
    row.narrow(0, first[slice.parameter] + slice.begin, slice.end - slice.begin)
        .copy_(gradients.slice_gradient(slice));
  }
}

int64_t num_trained(RankRun& run) {
  const auto& parameters = run.objective().gradients.parameters();
  return std::accumulate(parameters.begin(), parameters.end(), int64_t{0},
                         [](int64_t sum, const auto& p) { return sum + p.numel(); });
}

// The outcome of `updates` updates on each rank.
std::vector<Outcome> outcomes(const RunConfig& config, const std::string& engine, int world_size,
                              int updates) {
  const TokenData data(38);
  std::vector<Outcome> all(static_cast<size_t>(world_size));
  const auto open_windows = engine == "threads" ? std::make_shared<std::atomic<int>>(0) : nullptr;
  std::mutex mutex;
  at::Tensor row;
  on_engine(engine, world_size, [&](Communicator& comm) {
    RankRun run(config, data, comm, {}, open_windows);
    Outcome& outcome = all[static_cast<size_t>(comm.rank())];
    for (int i = 0; i < updates; ++i) {
      const StepReport report = run.step();
      EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
      if (i == 0) {
        const std::lock_guard lock(mutex);
        const auto& type = run.objective().gradients.owned()[0].options();
        if (!row.defined()) row = at::zeros({num_trained(run)}, type);
        put_owned(run, row);
      }
      outcome.loss = report.objectives[0].loss;
      outcome.norm = report.objectives[0].grad_norm;
    }
    outcome.weights = run.weights();
    outcome.scale = run.objective().scaler.scale();
  });
  for (auto& outcome : all) outcome.gradient = row;
  return all;
}

const Outcome& of_one_rank(const std::string& mode) {
  static std::map<std::string, Outcome> known;
  auto& outcome = known[mode];
  if (!outcome.weights.defined()) outcome = outcomes(shared_config(mode, 0), "single", 1, 5)[0];
  return outcome;
}

using Combination = std::tuple<int64_t, const char*, int, int64_t, const char*>;

class Zero : public ::testing::TestWithParam<Combination> {};

TEST_P(Zero, ranks_are_one_rank) {
  const auto [zero, engine, world_size, accumulation, mode] = GetParam();
  auto config = shared_config(mode, zero);
  const Outcome& one = of_one_rank(mode);
  const int64_t share = (12 + world_size - 1) / world_size;
  config.batch.microbatch = (share + accumulation - 1) / accumulation;
  const auto ranks = outcomes(config, engine, world_size, 5);
  for (const auto& rank : ranks) {
    EXPECT_TRUE(at::equal(rank.weights, ranks[0].weights)) << "ranks differ";
    EXPECT_EQ(rank.scale, one.scale);
    EXPECT_EQ(rank.loss, ranks[0].loss);
    EXPECT_EQ(rank.norm, ranks[0].norm);
  }
  const double gradient = relative(ranks[0].gradient, one.gradient);
  const double weights = relative(ranks[0].weights, one.weights);
  std::printf("zero %d %-8s %d ranks, accumulation %d, %s: gradients %.1e, weights %.1e\n",
              static_cast<int>(zero), engine, world_size, static_cast<int>(accumulation), mode,
              gradient, weights);
  const std::string precision = mode;
  if (precision == "fp64") {
    EXPECT_LT(weights, 1e-10);
    EXPECT_NEAR(ranks[0].loss, one.loss, 1e-11);
    EXPECT_NEAR(ranks[0].norm, one.norm, 1e-11);
    EXPECT_GT(one.norm, config.clip.norm) << "clipping does nothing";
  }
  // Sums in half precision depend on the order, which differs.
  EXPECT_LT(gradient, precision == "fp64"   ? 1e-12
                      : precision == "fp32" ? 1e-6
                      : precision == "fp16" ? 2e-3
                                            : 1.6e-2);
  const auto again = outcomes(config, engine, world_size, 5);
  EXPECT_TRUE(at::equal(again[0].weights, ranks[0].weights)) << "not the same twice";
}

// For each precision and number of ranks there are two combinations, which differ in everything
// else. Each number of ranks is tested with all levels, engines and accumulations, and each
// precision with all pairs of these.
std::vector<Combination> combinations() {
  constexpr const char* kEngines[] = {"threads", "gloo"};
  std::vector<Combination> all;
  int which = 0;
  for (const char* mode : {"fp64", "fp32", "bf16", "fp16"}) {
    for (const int world_size : {2, 3, 4}) {
      for (const int bits : {which & 3, 7 - (which & 3)}) {
        all.emplace_back(1 + (bits & 1), kEngines[bits >> 1 & 1], world_size,
                         (bits & 4) != 0 ? 3 : 1, mode);
      }
      ++which;
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Engines, Zero, ::testing::ValuesIn(combinations()));

TEST(ZeroStates, other_optimizers_and_packed_states_are_one_ranks_too) {
  struct Case {
    const char* kind;
    const char* state;
    const char* mode;
  };
  const TokenData data(38);
  for (const auto& [kind, state, mode] :
       {Case{"sgd", "fp32", "fp64"}, Case{"lion", "fp32", "fp64"}, Case{"radam", "fp32", "fp64"},
        Case{"adamw", "8bit", "fp32"}, Case{"adamw", "bf16", "fp32"}}) {
    auto config = shared_config(mode, 0);
    config.optimizer.kind = kind;
    config.optimizer.state = state;
    config.optimizer.layer_decay = 0.8;
    config.model.hidden_size = 64;  // large enough to be packed
    // The gradient of a key bias is only rounding error. Lion takes its sign, which depends on the
    // order of the sums. So the reference for Lion is unsharded state on the same number of ranks.
    const bool signs = std::string(kind) == "lion";
    const auto one =
        signs ? outcomes(config, "threads", 3, 4)[0] : outcomes(config, "single", 1, 4)[0];
    for (const int64_t zero : {1, 2}) {
      config.parallel.zero = zero;
      const auto ranks = outcomes(config, "threads", 3, 4);
      const double apart = relative(ranks[0].weights, one.weights);
      EXPECT_LT(apart, std::string(mode) == "fp64" ? 1e-10 : 2e-4)
          << kind << " " << state << " " << mode;
    }
  }
}

// Issue 21: a rank refused a pattern that matched none of its slices.
TEST(ZeroStates, exceptions_from_packed_state_are_of_the_whole_model) {
  auto config = shared_config("fp32", 0);
  config.optimizer.state = "8bit";
  config.optimizer.fp32_state = {"transformer.ln_f.*", "transformer.wpe.*"};
  config.model.hidden_size = 64;
  const auto one = outcomes(config, "single", 1, 2)[0];
  for (const int64_t zero : {1, 2}) {
    config.parallel.zero = zero;
    EXPECT_LT(relative(outcomes(config, "threads", 3, 2)[0].weights, one.weights), 2e-4);
  }
}

TEST(ZeroStates, amsgrad_and_groups_and_decay_follow_the_whole_parameters) {
  auto config = shared_config("fp64", 0);
  config.optimizer.amsgrad = true;
  config.optimizer.weight_decay = 0.1;  // not for vectors; slices look like vectors
  config.optimizer.groups = {{{"*.attn.*"}, 0.5, std::nullopt}, {{"*wpe*"}, std::nullopt, 0.3}};
  const auto one = outcomes(config, "single", 1, 4)[0];
  for (const int64_t zero : {1, 2}) {
    config.parallel.zero = zero;
    EXPECT_LT(relative(outcomes(config, "threads", 3, 4)[0].weights, one.weights), 1e-10);
  }
}

class ZeroLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(ZeroLayouts, channels_last_weights_keep_theirs) {
  auto config = tiny_config("convnet");
  config.batch.global_batch = "8";
  config.model.memory_format = "channels_last";
  const std::string kept = GetParam();
  config.optimizer.state = kept;
  if (kept != "fp32") {
    config.precision.mode = "fp32";
    config.model.channels = {32, 64};  // large enough to be packed
  }
  const auto data = open_dataset(config.data.train, "data.train");
  at::Tensor one;
  for (const int world_size : {1, 3}) {
    for (const int64_t zero : {1, 2}) {
      config.parallel.zero = zero;
      on_engine("threads", world_size, [&](Communicator& comm) {
        RankRun run(config, *data, comm);
        for (int i = 0; i < 3; ++i) run.step();
        for (const auto& p : run.state.task.module->parameters()) {
          EXPECT_TRUE(p.dim() != 4 || p.is_contiguous(at::MemoryFormat::ChannelsLast));
        }
        if (world_size == 1) {
          one = run.weights();
        } else {
          EXPECT_LT(relative(run.weights(), one), kept == "fp32" ? 1e-10 : 2e-4);
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(States, ZeroLayouts, ::testing::Values("fp32", "8bit", "bf16"));

class ZeroMemory : public ::testing::Test {
 protected:
  void TearDown() override {
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
  static int64_t bytes_of(MemoryKind kind) {
    return cpu_memory_by_kind().at(static_cast<size_t>(kind));
  }
  static RunConfig metered_config(int64_t zero) {
    auto config = shared_config("fp32", zero);
    config.model.num_layers = 8;
    config.model.hidden_size = 128;
    config.model.num_heads = 4;
    config.memory.limit = "8GiB";  // installs our allocator
    config.parallel.first_bucket_mb = 0.25;
    config.parallel.bucket_mb = 0.25;
    return config;
  }
};

TEST_F(ZeroMemory, each_rank_keeps_its_share_of_the_optimizer_and_of_the_gradients) {
  const TokenData data(38);
  const auto meter = [&](int64_t zero, int rank, int world_size) {
    const auto config = metered_config(zero);
    Task task = build_task(config, ModelRegistry(), data);
    const Plan plan = rank_plan(config, task, data, rank, world_size);
    const Parts parts = build_parts(plan, nullptr);
    const int64_t optimizer = bytes_of(MemoryKind::optimizer);
    const int64_t gradients = bytes_of(MemoryKind::gradients);
    const RunState state = build_run_state(std::move(task), parts);
    return std::pair{bytes_of(MemoryKind::optimizer) - optimizer,
                     bytes_of(MemoryKind::gradients) - gradients};
  };
  const auto whole = meter(0, 0, 1);
  ASSERT_GT(whole.first, 1 << 20);
  for (const int world_size : {2, 3, 4}) {
    for (const int64_t zero : {1, 2}) {
      std::pair<int64_t, int64_t> most;
      for (int rank = 0; rank < world_size; ++rank) {
        const auto own = meter(zero, rank, world_size);
        most = {std::max(most.first, own.first), std::max(most.second, own.second)};
      }
      const double optimizer = static_cast<double>(most.first) / static_cast<double>(whole.first);
      const double gradients = static_cast<double>(most.second) / static_cast<double>(whole.second);
      std::printf(
          "zero %d, %d ranks: at most %.3f of the optimizer's %lld bytes a rank, %.3f of "
          "the gradients' %lld\n",
          static_cast<int>(zero), world_size, optimizer, static_cast<long long>(whole.first),
          gradients, static_cast<long long>(whole.second));
      EXPECT_LT(optimizer, 1.05 / world_size);
      EXPECT_LT(gradients, zero == 1 ? 1.05 : 1.05 / world_size);
    }
  }
}

TEST_F(ZeroMemory, transient_gradients_never_exist_whole) {
  const TokenData data(38);
  std::map<int64_t, int64_t> most;
  int64_t trained = 0;
  for (const int64_t zero : {1, 2}) {
    const auto config = metered_config(zero);
    std::mutex mutex;
    on_ranks(2, [&](Communicator& comm) {
      RankRun run(config, data, comm);
      trained = num_trained(run) * 4;
      for (const auto& p : run.objective().gradients.parameters()) {
        p.register_hook([&](const at::Tensor& gradient) {
          const std::lock_guard lock(mutex);
          most[zero] = std::max(most[zero], bytes_of(MemoryKind::gradients));
          return gradient;
        });
      }
      run.step();
    });
  }
  std::printf("gradients of 2 ranks at their most: %.2f of %.2f MB\n",
              static_cast<double>(most[2]) / 1e6, static_cast<double>(most[1]) / 1e6);
  EXPECT_GE(most[1], 2 * trained);
  // The sharded parts are one half. In addition, a rank holds those of about 25 buckets that are in
  // use.
  EXPECT_LT(static_cast<double>(most[2]), 0.75 * static_cast<double>(most[1]));
}

TEST_F(ZeroMemory, a_dry_run_knows_what_a_rank_keeps) {
  const TokenData data(38);
  std::map<int64_t, MemoryPrediction> predicted;
  for (const int64_t zero : {0, 1, 2}) {
    const auto config = metered_config(zero);
    const auto make = [&] { return build_task(config, ModelRegistry(), data); };
    const Plan plan = rank_plan(config, make(), data, 3, 4);
    predicted[zero] = StepPredictor(make, data).step(plan);
  }
  const auto bytes = [&](int64_t zero, MemoryKind kind) {
    return static_cast<double>(predicted[zero].at_peak.at(static_cast<size_t>(kind)));
  };
  const double optimizer = bytes(0, MemoryKind::optimizer);
  EXPECT_NEAR(bytes(1, MemoryKind::optimizer), optimizer / 4, 0.05 * optimizer);
  EXPECT_NEAR(bytes(2, MemoryKind::optimizer), optimizer / 4, 0.05 * optimizer);
  EXPECT_LT(bytes(2, MemoryKind::gradients), 0.7 * bytes(0, MemoryKind::gradients));
  EXPECT_LT(predicted[1].peak_bytes, predicted[0].peak_bytes);
  EXPECT_LT(predicted[2].peak_bytes, predicted[1].peak_bytes);
}

// Operators of this thread wait for their weights. A forward on threads of its own would not wait.
TEST(ZeroOverlap,
     a_forward_of_one_thread_begins_while_weights_still_come_unless_the_option_says_no) {
  const TokenData data(38);
  for (const auto& [overlap, one_thread] : {std::pair{true, true}, {true, false}, {false, true}}) {
    auto config = shared_config("fp64", 1);
    config.parallel.overlap = overlap;
    on_ranks(2, [&, one_thread = one_thread, begins = overlap && one_thread](Communicator& comm) {
      RankRun run(config, data, comm);
      run.step();
      PhaseSpec& spec = run.state.phases.front().spec;
      EXPECT_TRUE(spec.forward_on_one_thread) << "a kind of the registry's own";
      spec.forward_on_one_thread = one_thread;
      auto& forward = spec.forward;
      const ShardedParameters& shards = *run.objective().shards;
      int64_t before = -1, after = -1;
      forward = [&, whole = forward](const Batch& batch) {
        before = shards.num_gathering();
        Terms terms = whole(batch);
        after = shards.num_gathering();
        return terms;
      };
      run.step();
      EXPECT_EQ(before > 0, begins);
      EXPECT_EQ(after, 0);  // the forward has used all weights
    });
  }
}

TEST_F(ZeroMemory, any_allocation_of_one_ranks_step_may_fail_and_the_other_rank_just_waits) {
  const TokenData data(32);
  auto config = shared_config("fp64", 2);
  config.model.dropout = 0;
  config.batch.global_batch = "8";
  config.batch.microbatch = 2;
  config.memory.limit = "8GiB";
  expect_any_allocation_may_fail(config, data, "zero 2, 2 ranks");
}

}  // namespace
}  // namespace tanren::testing
