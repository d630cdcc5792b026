// The gradient norm of an update is the same whatever the ranks and the layout, and finite for
// every finite gradient in fp32. Issue 27.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include <gtest/gtest.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

namespace tanren::testing {
namespace {

// Gradients have the same bits only if operators run on as many threads.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

struct Normed {
  std::vector<double> norms;  // of each update
  at::Tensor weights;
};

// The norms and weights of each rank after `updates` updates.
std::vector<Normed> normed(const RunConfig& config, int ranks, int updates) {
  const OneThread one_thread;
  const TokenData data(38);
  std::vector<Normed> all(static_cast<size_t>(ranks));
  on_engine("threads", ranks, [&](Communicator& comm) {
    RankRun run(config, data, comm);
    Normed& own = all[static_cast<size_t>(comm.rank())];
    for (int i = 0; i < updates; ++i) own.norms.push_back(run.step().objectives[0].grad_norm);
    own.weights = run.weights();
  });
  return all;
}

// With batches of one sample only the last rank has a sample. So every layout has the gradient of
// one rank to the last bit. Rank 0 contributes the norm.
TEST(NormOverRanks, is_bitwise_that_of_one_rank_where_gradients_are) {
  for (const char* mode : {"fp32", "fp64"}) {
    auto config = ranks_config(mode);
    config.batch.global_batch = "1";
    const Normed one = normed(config, 1, 4)[0];
    EXPECT_GT(one.norms[0], config.clip.norm) << "clipping does nothing";
    for (const int ranks : {2, 3}) {
      for (const double bucket_mb : {1.0 / 1024, 25.0}) {
        config.parallel.first_bucket_mb = config.parallel.bucket_mb = bucket_mb;
        for (const Normed& rank : normed(config, ranks, 4)) {
          EXPECT_EQ(rank.norms, one.norms) << mode << ", " << ranks << ", " << bucket_mb;
          EXPECT_TRUE(at::equal(rank.weights, one.weights)) << mode << ", " << ranks;
        }
      }
    }
  }
}

TEST(NormOverRanks, has_the_same_bits_with_any_buckets) {
  auto config = ranks_config("fp32");
  const Normed small = normed(config, 2, 3)[0];
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 25;
  for (const Normed& rank : normed(config, 2, 3)) EXPECT_EQ(rank.norms, small.norms);
}

// Each rank measures its own slices, so that each element counts once.
TEST(NormOverRanks, of_shared_gradients_is_that_of_whole_ones_to_rounding) {
  for (const int ranks : {2, 3}) {
    auto config = ranks_config("fp64");
    const Normed whole = normed(config, ranks, 1)[0];
    for (const int64_t zero : {1, 2}) {
      config.parallel.zero = zero;
      for (const Normed& rank : normed(config, ranks, 1)) {
        EXPECT_NEAR(rank.norms[0] / whole.norms[0], 1, 1e-12) << ranks << ", zero " << zero;
      }
    }
  }
}

// The frozen parameter lies before a parameter that backward reaches and one that it does not.
struct Places : torch::nn::Module {
  Places() {
    frozen = register_parameter("frozen", at::ones({3}), /*requires_grad=*/false);
    first = register_parameter("first", at::full({12}, 0.5));
    unused = register_parameter("unused", at::ones({3}));
    second = register_parameter("second", at::full({12}, 0.25));
  }
  at::Tensor frozen, first, unused, second;
};

// The loss is `factor` times a sum: the sum of `first` per sample, plus 3 times the sum of `second`
// if the microbatch has a sample from 6 on.
Task places_task(double factor) {
  auto net = std::make_shared<Places>();
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net, factor](const Batch& batch) -> Terms {
    at::Tensor sum = net->first.sum() * static_cast<double>(batch.size());
    if (batch.ids.ge(6).any().item<bool>()) sum = sum + net->second.sum() * 3.0;
    return {{"sum", sum * factor, "samples"}};
  };
  task.phases = {phase};
  return task;
}

RunConfig places_config(const std::string& mode) {
  auto config = ranks_config(mode);
  config.model.freeze = {};
  config.data.shuffle = false;
  config.optimizer.kind = "sgd";
  config.optimizer.learning_rate = 1e-30;
  config.optimizer.weight_decay = 0;
  config.clip.norm = 0;
  return config;
}

TEST(NormOverRanks, and_flags_of_a_model_with_frozen_parameters_are_each_in_its_place) {
  const TokenData data(12);
  auto config = places_config("fp64");
  config.optimizer.kind = "adamw";
  config.optimizer.learning_rate = 0.01;
  config.optimizer.weight_decay = 0.1;
  for (const int64_t zero : {0, 1}) {
    config.parallel.zero = zero;
    on_ranks(2, [&](Communicator& comm) {
      RankRun run(config, data, comm, [] { return places_task(1); });
      const StepReport report = run.step();
      // 12 elements have gradient 1 and 12 have 3/12.
      EXPECT_DOUBLE_EQ(report.objectives[0].grad_norm, std::sqrt(12 + 12.0 / 16));
      run.state.settle();
      const auto& net = dynamic_cast<const Places&>(*run.state.task.module);
      EXPECT_LT(net.first.max().item<double>(), 0.5) << "zero " << zero;
      EXPECT_LT(net.second.max().item<double>(), 0.25) << "rank 1 alone reaches it";
      EXPECT_TRUE(at::equal(net.unused, at::ones_like(net.unused))) << "not decayed either";
      EXPECT_TRUE(at::equal(net.frozen, at::ones_like(net.frozen)));
    });
  }
}

// Otherwise the rank would measure nothing, or what rank 0 measures too.
TEST(NormOverRanks, is_refused_where_the_objectives_were_built_for_another_rank) {
  const TokenData data(12);
  const auto alone = single_communicator();
  RankRun run(places_config("fp64"), data, *alone, [] { return places_task(1); });
  run.parts.plan.parallel.rank = 1;
  run.state = build_run_state(places_task(1), run.parts);
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { run.step(); }),
                         "was built for rank 1, and this is rank 0 of 1");
}

// All elements count except the three that no backward reaches.
TEST(FlushOverRanks, shares_count_each_element_once) {
  const TokenData data(12);
  auto config = places_config("fp32");
  config.precision.report_flush = true;
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t zero : {0, 1, 2}) {
      config.parallel.zero = ranks == 1 ? 0 : zero;
      on_engine("threads", ranks, [&](Communicator& comm) {
        for (const bool flushes : {true, false}) {
          RankRun run(config, data, comm, [&] { return places_task(flushes ? 1e-9 : 1e6); });
          const ObjectiveReport report = run.step().objectives[0];
          EXPECT_EQ(report.flush_share, flushes ? 24.0 / 27 : 0) << ranks << ", zero " << zero;
          EXPECT_EQ(report.overflow_share, flushes ? 0 : 24.0 / 27) << ranks << ", zero " << zero;
        }
      });
    }
  }
}

// One objective trains `first` alone; its second term never has a gradient.
Task told_task(bool freezes_unused) {
  Task task = places_task(1);
  auto net = std::dynamic_pointer_cast<Places>(task.module);
  net->frozen.set_requires_grad(true);
  net->unused.set_requires_grad(!freezes_unused);
  PhaseSpec& phase = task.phases.front();
  phase.objectives.front().parameters = {"first"};
  phase.forward = [net](const Batch& batch) -> Terms {
    return {{"sum", net->first.sum() * static_cast<double>(batch.size()), "samples"},
            {"told", at::full({}, 2.0, net->first.options().requires_grad(false)), "samples"}};
  };
  return task;
}

TEST(TermsOverRanks, may_lack_a_gradient_on_all_ranks_if_some_rank_has_frozen_parameters) {
  const TokenData data(12);
  on_ranks(2, [&](Communicator& comm) {
    RankRun run(places_config("fp64"), data, comm, [&] { return told_task(comm.rank() == 1); });
    EXPECT_EQ(run.step().objectives[0].verdict.action, Action::apply);
  });
  on_ranks(2, [&](Communicator& comm) {
    RankRun run(places_config("fp64"), data, comm, [] { return told_task(false); });
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { run.step(); }),
                           "term told of objective loss is 4 and has no gradient");
  });
}

// The sum of their squares does not fit fp32.
TEST(Norm, of_gradients_of_1e25_in_fp32_is_exact_and_the_update_is_applied) {
  const TokenData data(12);
  for (const int ranks : {1, 2}) {
    on_engine("threads", ranks, [&](Communicator& comm) {
      RankRun run(places_config("fp32"), data, comm, [] { return places_task(1e25); });
      const StepReport report = run.step();
      EXPECT_EQ(report.objectives[0].verdict.action, Action::apply) << ranks;
      const double exact = run.gradients().to(at::kDouble).norm().item<double>();
      EXPECT_GT(exact, 3e25);
      EXPECT_DOUBLE_EQ(report.objectives[0].grad_norm, exact) << ranks;
    });
  }
}

// fp64 has no wider dtype for the squares.
TEST(Norm, of_gradients_beyond_1e154_in_fp64_is_infinite_and_the_gradient_is_named) {
  const TokenData data(12);
  auto config = places_config("fp64");
  config.guard.nan_gradient = "skip";
  for (const double factor : {1e150, 1e160}) {
    for (const int ranks : {1, 2}) {
      on_engine("threads", ranks, [&](Communicator& comm) {
        RankRun run(config, data, comm, [&] { return places_task(factor); });
        const StepReport report = run.step();
        const ObjectiveReport& objective = report.objectives[0];
        const bool fits = factor < 1e154;
        EXPECT_EQ(objective.verdict.action, fits ? Action::apply : Action::skip) << factor;
        EXPECT_EQ(objective.verdict.cause, fits ? Cause::none : Cause::nan_gradient) << factor;
        EXPECT_EQ(std::isfinite(objective.grad_norm), fits) << factor;
        const auto named = report.culprit.find("first non-finite gradient first");
        EXPECT_EQ(named == std::string::npos, fits) << report.culprit;
      });
    }
  }
}

}  // namespace
}  // namespace tanren::testing
