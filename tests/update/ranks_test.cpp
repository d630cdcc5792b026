// The results of an update other than the weights are equal on all ranks: averaged weights,
// buffers, estimated statistics, and the skip of a batch that counts nothing. Issue 21.
#include "tests/support/rank_run.h"

#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/metrics/queued_sink.h"
#include "tanren/model/losses.h"
#include "tanren/train/estimate_statistics.h"
#include "tests/update/sparse_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>

#include <torch/nn/modules/batchnorm.h>

namespace tanren::testing {
namespace {

TensorMap copy_of(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) copies.set(name, tensor.clone());
  return copies;
}

State copy_of(const State& state) { return {copy_of(state.tensors), state.values}; }

bool same(const TensorMap& a, const TensorMap& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& item) {
           return at::equal(item.second, b.at(item.first));
         });
}

// Batch norm and averaged weights; 38 samples in batches of 11, the last one of 5.
RunConfig averaged_config(const std::string& kind) {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.data.train.samples = 38;
  config.batch.global_batch = "11";
  config.average.kind = kind;
  return config;
}

struct Saved {
  State model, optimizer, run, average;
};

Saved saved(const RankRun& run) {
  return {{copy_of(run.state.model_tensors()), {}},
          copy_of(run.state.optimizer_state()),
          copy_of(run.state.run_state(run.parts.device)),
          copy_of(run.state.average_state())};
}

// The state of each rank after `updates` updates, which continue from `start` if it is given.
std::vector<Saved> trained(const RunConfig& config, int ranks, int updates,
                           const Saved* start = nullptr) {
  const auto data = open_dataset(config.data.train, "data.train");
  std::vector<Saved> all(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](Communicator& comm) {
    RankRun run(config, *data, comm);
    if (start != nullptr) {
      const Saved from{copy_of(start->model), copy_of(start->optimizer), copy_of(start->run),
                       copy_of(start->average)};
      run.state.load(run.parts.device, from.model, from.optimizer, from.run, from.average);
      run.batches = std::make_unique<BatchStream>(make_loader(run.state, run.parts, run.dataset),
                                                  *run.parts.ranks);
    }
    for (int i = 0; i < updates; ++i) run.step();
    all[static_cast<size_t>(comm.rank())] = saved(run);
  });
  return all;
}

TEST(AverageOverRanks, is_the_same_on_every_rank_with_batch_norm) {
  for (const char* kind : {"ema", "swa"}) {
    for (const int64_t zero : {0, 1, 2}) {
      auto config = averaged_config(kind);
      if (std::string(kind) == "swa") config.average.start = "1";
      config.parallel.zero = zero;
      const auto ranks = trained(config, 2, 5);
      for (const auto& [name, tensor] : ranks[0].average.tensors) {
        EXPECT_TRUE(at::equal(tensor, ranks[1].average.tensors.at(name)))
            << kind << ", zero " << zero << ": " << name;
      }
    }
  }
}

TEST(AverageOverRanks, stopped_and_resumed_is_bitwise_that_of_the_run_that_was_not_stopped) {
  const auto config = averaged_config("ema");
  const auto whole = trained(config, 2, 7);
  const auto first = trained(config, 2, 3);
  const auto second = trained(config, 2, 4, &first[0]);  // checkpoints hold rank 0's state
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(same(second[rank].model.tensors, whole[rank].model.tensors)) << rank;
    EXPECT_TRUE(same(second[rank].average.tensors, whole[rank].average.tensors)) << rank;
    EXPECT_EQ(second[rank].average.values, whole[rank].average.values);
  }
}

TEST(AverageOverRanks, takes_the_shared_statistics_in) {
  auto config = averaged_config("swa");
  config.average.start = "1";
  config.average.every = 4;
  config.average.buffers = "average";
  const auto ranks = trained(config, 2, 4);  // the average is a copy of the state after update 4
  ASSERT_GT(ranks[1].average.tensors.size(), 0U);
  for (const auto& [name, tensor] : ranks[1].average.tensors) {
    EXPECT_TRUE(at::equal(tensor, ranks[1].model.tensors.at(name))) << name;
  }
}

// A norm directly on the inputs, so that its statistics are known, and constant buffers.
struct Constants : torch::nn::Module {
  Constants() {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    weight = register_parameter("weight", at::randn({4, 15}) * 0.3);
    mask = register_buffer("mask", at::full({2}, std::numeric_limits<float>::lowest()));
    endless = register_buffer("endless", at::full({2}, -std::numeric_limits<float>::infinity()));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::linear(at::tanh(norm->forward(x.squeeze(1))).flatten(1), weight);
  }
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor weight, mask, endless;
};

Task constants_task() {
  at::manual_seed(5);
  auto net = std::make_shared<Constants>();
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

// Batches of 11 and 2 samples; rank 0 of three has no sample of the second.
RunConfig constants_config() {
  auto config = tiny_config("mlp");
  config.model.hidden = {};
  config.data.train.fields = {"inputs: float[1,3,5] in [-1, 1]", "labels: int[] in [0, 3]"};
  config.data.train.samples = 13;
  config.batch.global_batch = "11";
  return config;
}

TEST(BuffersOverRanks, constants_stay_and_only_running_statistics_are_averaged) {
  for (const char* mode : {"fp32", "fp64"}) {
    auto config = constants_config();
    config.precision.mode = mode;
    config.average.kind = "ema";
    const auto data = open_dataset(config.data.train, "data.train");
    on_ranks(3, [&](Communicator& comm) {
      RankRun run(config, *data, comm, constants_task);
      auto& net = dynamic_cast<Constants&>(*run.state.task.module);
      const at::Tensor mask = at::full_like(net.mask, mode == std::string("fp64")
                                                          ? std::numeric_limits<double>::lowest()
                                                          : net.mask[0].item<float>());
      net.mask.copy_(mask);
      const at::Tensor endless = net.endless.clone();
      for (int i = 0; i < 4; ++i) run.step();
      EXPECT_TRUE(at::equal(net.mask, mask)) << mode << ": " << net.mask;
      EXPECT_TRUE(at::equal(net.endless, endless)) << mode << ": " << net.endless;
      const TensorMap averaged = run.state.averaged_tensors();
      EXPECT_TRUE(at::equal(averaged.at("mask"), mask)) << mode;
      EXPECT_TRUE(at::equal(averaged.at("endless"), endless)) << averaged.at("endless");
    });
  }
}

TEST(BuffersOverRanks, ranks_weigh_by_their_samples_and_those_without_any_have_no_say) {
  const auto config = constants_config();
  const auto data = open_dataset(config.data.train, "data.train");
  const auto alone = single_communicator();
  RankRun one(config, *data, *alone, constants_task);
  at::Tensor expected = at::zeros({3}, at::kDouble);  // the running mean
  for (int i = 0; i < 2; ++i) {
    const at::Tensor inputs = one.batches->next().local["inputs"].to(at::kDouble);
    expected = 0.9 * expected + 0.1 * inputs.squeeze(1).mean(at::IntArrayRef{0, 2});
  }
  for (const char* buffers : {"mean", "first"}) {
    auto shared = config;
    shared.parallel.buffers = buffers;
    on_ranks(3, [&](Communicator& comm) {
      RankRun run(shared, *data, comm, constants_task);
      run.step();
      run.step();
      const auto& net = dynamic_cast<const Constants&>(*run.state.task.module);
      EXPECT_EQ(net.norm->num_batches_tracked.item<int64_t>(), 2) << buffers;
      if (buffers == std::string("mean")) {
        EXPECT_LT(relative(net.norm->running_mean, expected), 1e-12);
      }
    });
  }
}

TEST(BuffersOverRanks, a_frozen_norm_keeps_its_statistics_to_the_last_bit) {
  const auto config = constants_config();
  const auto data = open_dataset(config.data.train, "data.train");
  on_ranks(3, [&](Communicator& comm) {
    RankRun run(config, *data, comm, constants_task);
    auto& net = dynamic_cast<Constants&>(*run.state.task.module);
    net.norm->eval();
    net.norm->running_mean.fill_(1.0 / 3);
    net.norm->running_var.fill_(0.7);
    const at::Tensor mean = net.norm->running_mean.clone(), var = net.norm->running_var.clone();
    for (int i = 0; i < 4; ++i) run.step();
    EXPECT_TRUE(at::equal(net.norm->running_mean, mean));
    EXPECT_TRUE(at::equal(net.norm->running_var, var));
  });
}

// A norm whose buffers only one phase updates; the forwards of both phases use it.
struct Judge : torch::nn::Module {
  Judge() {
    norm = register_module("norm",
                           torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(3).affine(false)));
    scale = register_parameter("scale", at::ones({15}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::tanh(norm->forward(x.squeeze(1))).flatten(1);
  }
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor scale;
};

struct Judged : torch::nn::Module {
  Judged() {
    judge = register_module("judge", std::make_shared<Judge>());
    weight = register_parameter("weight", at::randn({4, 15}) * 0.3);
  }
  std::shared_ptr<Judge> judge;
  at::Tensor weight;
};

// Two phases; the loss of the second is NaN.
Task judged_task() {
  at::manual_seed(5);
  auto net = std::make_shared<Judged>();
  const auto inputs_of = [net](const Batch& batch) {
    return batch["inputs"].to(net->weight.scalar_type());
  };
  Task task;
  task.module = net;
  PhaseSpec first, second;
  first.name = "first";
  first.objectives = {{.name = "body", .terms = {}, .parameters = {"weight"}}};
  first.forward = [=](const Batch& batch) -> Terms {
    const at::Tensor features = net->judge->forward(inputs_of(batch));
    return {cross_entropy(at::linear(features, net->weight), batch["labels"])};
  };
  second.name = "second";
  second.objectives = {{.name = "judge", .terms = {}, .parameters = {"judge.*"}}};
  second.forward = [=](const Batch& batch) -> Terms {
    const at::Tensor features = net->judge->forward(inputs_of(batch)) * net->judge->scale;
    const at::Tensor scores = at::linear(features, net->weight.detach());
    return {cross_entropy(scores * std::numeric_limits<double>::quiet_NaN(), batch["labels"])};
  };
  task.phases = {first, second};
  return task;
}

TEST(BuffersOverRanks, that_only_a_skipped_phase_updates_are_the_same_on_every_rank) {
  auto config = constants_config();
  config.guard.nan_loss = "skip";
  const auto data = open_dataset(config.data.train, "data.train");
  std::vector<at::Tensor> means(2);
  on_ranks(2, [&](Communicator& comm) {
    RankRun run(config, *data, comm, judged_task);
    for (int i = 0; i < 2; ++i) {
      const GlobalBatch batch = run.batches->next();
      const auto report = update(run.state, run.parts, batch);
      ASSERT_EQ(report->objectives.size(), 2u);
      EXPECT_EQ(report->objectives[0].verdict.action, Action::apply);
      EXPECT_EQ(report->objectives[1].verdict.action, Action::skip);
    }
    const auto& net = dynamic_cast<const Judged&>(*run.state.task.module);
    means[static_cast<size_t>(comm.rank())] = net.judge->norm->running_mean.clone();
  });
  EXPECT_GT(means[0].abs().max().item<double>(), 0);
  EXPECT_TRUE(at::equal(means[0], means[1])) << means[0] << means[1];
}

// Counts the samples that this rank collates.
class Counted : public Dataset {
 public:
  explicit Counted(const Dataset& inner) : inner_(inner) {}
  int64_t size() const override { return inner_.size(); }
  DataInfo info() const override { return inner_.info(); }
  Collated collate(const std::vector<int64_t>& indices) const override {
    made += std::ssize(indices);
    return inner_.collate(indices);
  }
  mutable std::atomic<int64_t> made = 0;

 private:
  const Dataset& inner_;
};

struct Estimated {
  TensorMap average;
  int64_t made = 0;  // samples collated for the estimate
};

// Estimates the statistics of the averaged weights `given`. Returns the result of each rank.
std::vector<Estimated> estimated(const RunConfig& config, int ranks, const TensorMap& given) {
  const auto data = open_dataset(config.data.train, "data.train");
  std::vector<Estimated> all(static_cast<size_t>(ranks));
  on_engine("threads", ranks, [&](Communicator& comm) {
    const Counted counted(*data);
    RankRun run(config, counted, comm);
    run.step();
    for (const auto& [name, tensor] : run.state.average_state().tensors) {
      if (const auto* value = given.find(name)) at::Tensor(tensor).copy_(*value);
    }
    counted.made = 0;
    estimate_statistics(run.state, run.parts, counted);
    all[static_cast<size_t>(comm.rank())] = {copy_of(run.state.average_state().tensors),
                                             counted.made};
  });
  return all;
}

RunConfig estimate_config(int64_t microbatch) {
  auto config = averaged_config("swa");
  config.average.start = "1";
  config.average.buffers = "estimate";
  config.model.dropout = 0.2;
  config.batch.microbatch = microbatch;
  return config;
}

void expect_estimate_of_one(const std::vector<Estimated>& ranks, const Estimated& one,
                            const std::string& what) {
  int64_t made = 0;
  for (const Estimated& rank : ranks) {
    made += rank.made;
    EXPECT_TRUE(same(rank.average, ranks[0].average)) << what << ": ranks differ";
    EXPECT_LE(rank.made, one.made / std::ssize(ranks) + 6) << what << ": a rank made more";
  }
  EXPECT_EQ(made, one.made) << what << ": samples made by all ranks";
  for (const auto& [name, tensor] : one.average) {
    EXPECT_LT(relative(ranks[0].average.at(name), tensor), 1e-10) << what << ": " << name;
  }
}

TEST(EstimateOverRanks, is_shared_out_and_equals_that_of_one_rank) {
  for (const int64_t batches : {0, 5, 2}) {  // 38 samples give 12 full batches of 3
    auto config = estimate_config(3);
    config.average.estimate_batches = batches;
    const Estimated one = estimated(config, 1, {})[0];
    for (const int ranks : {2, 3}) {
      expect_estimate_of_one(estimated(config, ranks, one.average), one,
                             std::to_string(ranks) + " ranks, " + std::to_string(batches));
    }
  }
}

TEST(EstimateOverRanks, with_synchronised_batch_norm_measures_the_batches_of_all_ranks) {
  const Estimated one = estimated(estimate_config(6), 1, {})[0];
  auto config = estimate_config(3);
  config.parallel.buffers = "synchronised";
  expect_estimate_of_one(estimated(config, 2, one.average), one, "synchronised");
}

// Every batch is an exchange, so that no rank may stop alone.
TEST(EstimateOverRanks, with_synchronised_batch_norm_stops_on_all_ranks_when_one_is_asked_to) {
  auto config = estimate_config(1);  // 38 samples give 19 batches of one of each rank
  config.batch.global_batch = "2";
  config.parallel.buffers = "synchronised";
  const auto data = open_dataset(config.data.train, "data.train");
  on_engine("threads", 2, [&](Communicator& comm) {
    const Counted counted(*data);
    RankRun run(config, counted, comm);
    run.step();
    const TensorMap before = copy_of(run.state.average_state().tensors);
    run.batches.reset();
    counted.made = 0;
    const std::atomic<bool> stop{true};
    if (comm.rank() == 1) run.parts.stop = &stop;
    EXPECT_FALSE(estimate_statistics(run.state, run.parts, counted));
    EXPECT_LT(counted.made, 19);
    EXPECT_TRUE(same(run.state.average_state().tensors, before));
  });
}

TEST(EstimateOverRanks, takes_the_smallest_microbatch_of_all_ranks) {
  const Estimated one = estimated(estimate_config(3), 1, {})[0];
  const auto config = estimate_config(3);
  const auto data = open_dataset(config.data.train, "data.train");
  on_ranks(2, [&](Communicator& comm) {
    auto own = config;
    own.batch.microbatch = 3 + 2 * comm.rank();
    RankRun run(own, *data, comm);
    run.step();
    for (const auto& [name, tensor] : run.state.average_state().tensors) {
      at::Tensor(tensor).copy_(one.average.at(name));
    }
    estimate_statistics(run.state, run.parts, *data);
    for (const auto& [name, tensor] : run.state.average_state().tensors) {
      EXPECT_LT(relative(tensor, one.average.at(name)), 1e-10) << name;
    }
  });
}

// The second batch of 12 has no token that counts.
TEST(NothingCounted, is_skipped_alike_by_all_ranks_and_leaves_no_trace) {
  const SparseTokens data(36, 12, 24);
  for (const int64_t zero : {0, 2}) {
    auto config = sparse_config("fp64");
    config.average.kind = "ema";
    config.parallel.zero = zero;
    const auto alone = single_communicator();
    auto single = config;
    single.parallel.zero = 0;
    RankRun one(single, data, *alone);
    for (int i = 0; i < 3; ++i) one.step();
    on_ranks(3, [&](Communicator& comm) {
      RankRun run(config, data, comm);
      run.step();
      const at::Tensor weights = run.weights();
      const Saved before = saved(run);
      const StepReport skipped = run.step();
      EXPECT_EQ(skipped.objectives[0].verdict.action, Action::skip);
      EXPECT_EQ(name(skipped.objectives[0].verdict.cause), "nothing counted");
      EXPECT_EQ(skipped.attempt, 2);
      EXPECT_EQ(skipped.step, 1);
      EXPECT_TRUE(at::equal(run.weights(), weights)) << "zero " << zero;
      const Saved after = saved(run);
      EXPECT_TRUE(same(after.optimizer.tensors, before.optimizer.tensors));
      EXPECT_TRUE(same(after.average.tensors, before.average.tensors));
      EXPECT_EQ(after.average.values, before.average.values);
      run.step();
      EXPECT_EQ(run.state.step(), 2);
      EXPECT_LT(relative(run.weights(), one.weights()), 1e-10) << "zero " << zero;
    });
  }
}

// With sharded optimizer state, the last save after an error is an exchange between ranks. If one
// rank fails before it, the others must not wait in it.
TEST(LastSave, is_made_by_all_ranks_or_by_none_and_the_error_is_the_same) {
  const SparseTokens data(36, 0, 36);
  // An error of a sink does not prevent the save.
  struct Full : Sink {
    void step(const StepReport&) override {}
    void flush() override { throw RecordError("the disk is full"); }
  } full;
  for (const bool fails : {true, false}) {
    for (const int64_t zero : {0, 2}) {
      const TemporaryFolder folder;
      const auto blocked = std::filesystem::path(folder.file("file", "")) / "checkpoints";
      auto config = sparse_config("fp64");
      config.parallel.zero = zero;
      std::vector<std::string> errors(2);
      on_ranks(2, [&](Communicator& comm) {
        RankRun run(config, data, comm);
        // No folder can be created below a file.
        LoopInputs inputs{.train = data, .checkpoints = fails ? blocked : folder.path()};
        if (comm.rank() == 0) inputs.sinks = {&full};
        try {
          train_loop(run.state, run.parts, inputs);
        } catch (const DataError& error) {
          errors[static_cast<size_t>(comm.rank())] = error.what();
        }
      });
      TANREN_EXPECT_CONTAINS(errors[0], "no batch of a whole epoch can be trained on");
      EXPECT_EQ(errors[0], errors[1]) << "zero " << zero;
      EXPECT_EQ(contains(errors[0], "no checkpoint of this state was written ("), fails)
          << errors[0];
      EXPECT_EQ(latest_checkpoint(folder.path()).has_value(), !fails) << "zero " << zero;
    }
  }
}

}  // namespace
}  // namespace tanren::testing
