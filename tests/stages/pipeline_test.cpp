// A run in stages is the run without stages: the same replicas and microbatches give the same
// losses, norms, weights and buffers, bitwise where no weight is in two stages and no state is
// shared.
#include "tests/stages/staged_models.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace tanren::testing {
namespace {

std::string told(const StagedRun& run) {
  return std::to_string(run.stages) + " stages, " + std::to_string(run.replicas) + " replicas, " +
         (run.schedule == PipelineSchedule::gpipe ? "gpipe" : "1f1b") + ", microbatches of " +
         std::to_string(run.config.batch.microbatch);
}

// Compares `run` in each of these numbers of stages, by both schedules, with `run` in one piece.
void expect_stages_change_nothing(StagedRun run, const std::vector<int>& stages, int updates,
                                  double tolerance) {
  run.stages = 1;
  const Trained whole = trained(run, updates);
  for (const int count : stages) {
    for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
      run.stages = count;
      run.schedule = schedule;
      SCOPED_TRACE(told(run));
      expect_same(trained(run, updates), whole, tolerance);
    }
  }
}

// Nine samples a replica: one, three or five microbatches. The last of several has one sample.
TEST(Pipeline, of_any_size_schedule_and_microbatch_trains_bitwise_as_the_whole_model) {
  const StagedModel model("bert", "fp64");
  for (const int replicas : {1, 2}) {
    for (const int64_t microbatch : {9, 4, 2}) {
      StagedRun run = model.run(replicas);
      run.config.batch.microbatch = microbatch;
      expect_stages_change_nothing(run, {2, 3, 4}, 2, kBitwise);
    }
  }
}

TEST(Pipeline, in_any_precision_trains_bitwise_as_the_whole_model) {
  for (const char* mode : {"fp32", "bf16", "fp16", "O2 bf16"}) {
    SCOPED_TRACE(mode);
    const StagedModel model("bert", mode);
    StagedRun run = model.run(/*replicas=*/2);
    if (std::string(mode) == "fp16") run.config.precision.initial_scale = "auto";
    expect_stages_change_nothing(run, {3}, 3, kBitwise);
  }
}

TEST(Pipeline, of_any_model_trains_bitwise_as_the_whole_model) {
  for (const char* kind : {"mlp", "convnet", "lstm", "own", "resnet"}) {
    SCOPED_TRACE(kind);
    const StagedModel model(kind, "fp32");
    expect_stages_change_nothing(model.run(/*replicas=*/1), {std::string(kind) == "lstm" ? 2 : 3},
                                 2, kBitwise);
  }
}

TEST(Pipeline, with_a_weight_in_two_stages_trains_as_the_whole_model) {
  const TokenData data(38);  // counts of tokens differ
  for (const int replicas : {1, 2}) {
    StagedRun run{.config = ranks_config("fp64"), .data = data, .replicas = replicas};
    run.config.batch.microbatch = 4 / replicas;
    expect_stages_change_nothing(run, {2, 4}, 5, 1e-10);
  }
}

TEST(Pipeline, with_batch_norm_and_two_replicas_trains_bitwise_as_they_do_with_the_whole_model) {
  for (const char* kind : {"convnet", "resnet"}) {
    SCOPED_TRACE(kind);
    const StagedModel model(kind, "fp32");
    expect_stages_change_nothing(model.run(/*replicas=*/2), {2, 3}, 2, kBitwise);
  }
}

// Three layers, which a test's forward puts into blocks.
struct LayersNet : torch::nn::Module {
  LayersNet() {
    first = register_module("first", torch::nn::Linear(64, 12));
    second = register_module("second", torch::nn::Linear(12, 12));
    third = register_module("third", torch::nn::Linear(12, 5));
  }

  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  int calls = 0;
};

using LayersForward = std::function<at::Tensor(LayersNet&, const at::Tensor&)>;

StagedRun layers_run(const StagedModel& model, const LayersForward& forward) {
  StagedRun run = model.run(/*replicas=*/1);
  run.make_task = [forward, options = model.config.model, info = model.data->info()] {
    at::manual_seed(7);
    const auto net = std::make_shared<LayersNet>();
    const auto compute = [net, forward](const at::Tensor& inputs) {
      return forward(*net, inputs.flatten(1));
    };
    return supervised(net, compute, options, info);
  };
  return run;
}

// With gradients of 0 instead of none, AdamW's weight decay would change these weights.
TEST(Pipeline, leaves_weights_alone_that_no_gradient_reaches) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = layers_run(model, [](LayersNet& net, const at::Tensor& inputs) {
    at::Tensor x = run_block("first", [&] { return net.first(inputs).tanh(); });
    x = run_block("second", [&] { return net.second(x).tanh(); });
    return run_block("third", [&] { return net.third(x.detach()); });
  });
  run.config.optimizer.kind = "adamw";
  run.config.optimizer.weight_decay = 0.1;
  expect_stages_change_nothing(run, {2, 3}, 3, kBitwise);
  run.stages = 3;
  const Trained staged = trained(run, 3);
  const auto initial = run.task().module->named_parameters();
  for (const char* name : {"first.weight", "first.bias", "second.weight", "second.bias"}) {
    EXPECT_TRUE(at::equal(staged.tensors.at(name), initial[name].detach())) << name;
  }
  EXPECT_FALSE(at::equal(staged.tensors.at("third.weight"), initial["third.weight"].detach()));
}

TEST(Pipeline, with_an_output_whose_strides_change_trains_as_the_whole_model) {
  const StagedModel model("mlp", "fp64");
  const StagedRun run = layers_run(model, [](LayersNet& net, const at::Tensor& inputs) {
    at::Tensor x = run_block("first", [&] {
      const at::Tensor y = net.first(inputs).tanh();
      return net.calls++ % 2 == 0 ? y : y.t().contiguous().t();
    });
    x = run_block("second", [&] { return net.second(x).tanh(); });
    return run_block("third", [&] { return net.third(x); });
  });
  expect_stages_change_nothing(run, {3}, 2, 1e-10);
}

struct Feature {
  const char* name;
  std::function<void(RunConfig&)> set;
  double tolerance = kBitwise;
};

TEST(Pipeline, with_what_else_a_run_may_have_trains_as_the_whole_model) {
  const std::vector<Feature> features = {
      {"active clipping", [](RunConfig& config) { config.clip.norm = 0.01; }},
      {"the first stage frozen",
       [](RunConfig& config) {
         config.model.freeze = {"bert.embeddings.*", "bert.encoder.layer.0.*"};
       }},
      {"the last stage frozen",
       [](RunConfig& config) {
         config.model.freeze = {"classifier.*", "bert.pooler.*"};
       }},
      {"unfrozen after an update",
       [](RunConfig& config) {
         config.model.freeze = {"bert.embeddings.*", "bert.encoder.layer.0.*"};
         config.model.unfreeze = {{.parameters = {"bert.encoder.layer.0.*"}, .step = 1}};
       }},
      {"recomputed blocks",
       [](RunConfig& config) { config.memory.recompute = {"bert.encoder.layer.*"}; }},
      {"averages", [](RunConfig& config) { config.average.kind = "ema"; }},
      {"sgd", [](RunConfig& config) { config.optimizer.kind = "sgd"; }},
      {"zero 1", [](RunConfig& config) { config.parallel.zero = 1; }, 1e-10},
      {"zero 2", [](RunConfig& config) { config.parallel.zero = 2; }, 1e-10},
  };
  const StagedModel model("bert", "fp64");
  for (const Feature& feature : features) {
    SCOPED_TRACE(feature.name);
    StagedRun run = model.run(/*replicas=*/2);
    feature.set(run.config);
    expect_stages_change_nothing(run, {3}, 3, feature.tolerance);
  }
}

TEST(Pipeline, with_shared_state_and_a_weight_in_two_stages_trains_as_the_whole_model) {
  const TokenData data(38);
  for (const int64_t zero : {1, 2}) {
    StagedRun run{.config = ranks_config("fp64"), .data = data, .replicas = 2};
    run.config.batch.microbatch = 3;
    run.config.parallel.zero = zero;
    expect_stages_change_nothing(run, {3}, 3, 1e-10);
  }
}

// The fourth batch has two samples for three replicas.
TEST(Pipeline, of_a_replica_without_samples_trains_bitwise_as_the_whole_model) {
  const StagedModel model("bert", "fp64", /*samples=*/38);
  StagedRun run = model.run(/*replicas=*/3);
  run.config.batch.global_batch = "12";
  run.config.batch.microbatch = 2;
  expect_stages_change_nothing(run, {2}, 4, kBitwise);
}

// At this scale gradients overflow, so that updates are skipped and the scale is halved.
TEST(Pipeline, skips_what_the_whole_model_skips) {
  const StagedModel model("bert", "fp16");
  StagedRun run = model.run(/*replicas=*/1);
  run.config.precision.initial_scale = std::to_string(int64_t{1} << 26);
  run.stages = 1;
  const Trained whole = trained(run, 4);
  ASSERT_EQ(whole.actions.front(), Action::skip);
  run.stages = 3;
  expect_same(trained(run, 4), whole, kBitwise);
}

}  // namespace
}  // namespace tanren::testing
