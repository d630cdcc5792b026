// Cases in which an update must leave no trace: an interrupted search of the loss scale, and a
// batch that counts nothing. Also, objectives do not mix their states. Issue 21.
#include "tests/support/tiny_run.h"
#include "tests/update/sparse_tokens.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/train_loop.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren::testing {
namespace {

RunConfig searching_config() {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.precision.mode = "fp16";
  config.precision.initial_scale = "auto";
  config.batch.global_batch = "8";
  config.batch.microbatch = 4;
  return config;
}

TEST(ScaleSearch, that_a_stop_breaks_off_leaves_no_scale_and_no_trace) {
  TinyRun run(searching_config());
  const State scaler = run.objective().scaler.state();
  TensorMap before;
  for (const auto& [name, tensor] : run.state.model_tensors()) before.set(name, tensor.clone());
  std::atomic<bool> stop = false;
  run.parts.stop = &stop;
  int forwards = 0;
  auto& forward = run.state.phases.front().spec.forward;
  forward = [&, whole = forward](const Batch& batch) {
    stop = ++forwards == 3;  // in the search's second window, before its last microstep
    return whole(batch);
  };
  const GlobalBatch batch = run.loader->next();
  EXPECT_FALSE(update(run.state, run.parts, batch).has_value());
  EXPECT_EQ(forwards, 3) << "the search went on after the stop";
  EXPECT_EQ(run.objective().scaler.state().values, scaler.values);
  for (const auto& [name, tensor] : run.state.model_tensors()) {
    EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
  }
  run.parts.stop = nullptr;
  TinyRun undisturbed(searching_config());
  run.step(batch);
  undisturbed.step();
  EXPECT_EQ(run.objective().scaler.state().values, undisturbed.objective().scaler.state().values);
  EXPECT_TRUE(at::equal(run.weights(), undisturbed.weights()));
}

// With an infinite loss the gradients are finite at no scale, so the search learns nothing.
TEST(ScaleSearch, waits_for_a_window_whose_loss_is_finite) {
  auto config = searching_config();
  config.guard.nan_loss = "skip";
  TinyRun run(config);
  auto batch = run.loader->next();
  const at::Tensor inputs = batch.local["inputs"].clone();
  batch.local.fields.set("inputs", at::full_like(inputs, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(run.step(batch).objectives[0].verdict.cause, Cause::nan_loss);
  EXPECT_TRUE(run.objective().scaler.wants_search());
  batch.local.fields.set("inputs", inputs);
  run.step(batch);
  EXPECT_FALSE(run.objective().scaler.wants_search());
  EXPECT_GT(run.objective().scaler.scale(), 1);
}

TEST(NothingCounted, skips_the_update_and_moves_nothing_but_the_attempt) {
  const SparseTokens data(36, 12, 24);
  for (const char* mode : {"fp64", "fp16"}) {
    auto config = sparse_config(mode);
    config.guard.max_skips = 1;  // a skip for any other cause would end the run
    config.optimizer.weight_decay = 0.1;
    config.precision.initial_scale = "1024";
    TinyRun run(config, &data, std::nullopt);
    run.step();
    const at::Tensor weights = run.weights();
    const auto scaler = run.objective().scaler.state().values;
    const auto guard = run.objective().guard.state().values;
    const StepReport report = run.step();
    EXPECT_EQ(report.objectives[0].verdict.action, Action::skip) << mode;
    EXPECT_EQ(name(report.objectives[0].verdict.cause), "nothing counted") << mode;
    EXPECT_NE(report.culprit.find("0 tokens"), std::string::npos) << report.culprit;
    EXPECT_EQ(report.attempt, 2);
    EXPECT_EQ(report.step, 1);
    EXPECT_EQ(report.objectives[0].step, 1);
    EXPECT_TRUE(at::equal(run.weights(), weights)) << mode;
    EXPECT_EQ(run.objective().scaler.state().values, scaler);
    EXPECT_EQ(run.objective().guard.state().values, guard);
    EXPECT_EQ(run.step().objectives[0].verdict.action, Action::apply) << mode;
  }
}

TEST(NothingCounted, is_no_window_to_search_a_loss_scale_in) {
  const SparseTokens data(36, 0, 12);
  auto config = sparse_config("fp16");
  config.precision.initial_scale = "auto";
  TinyRun run(config, &data, std::nullopt);
  run.step();
  EXPECT_TRUE(run.objective().scaler.wants_search());
  run.step();
  EXPECT_FALSE(run.objective().scaler.wants_search());
  EXPECT_LT(run.objective().scaler.scale(), 0x1p30);
}

TEST(NothingCounted, in_one_microbatch_of_a_batch_that_counts_some_changes_nothing) {
  const SparseTokens data(36, 4, 8);
  auto config = sparse_config("fp64");
  TinyRun whole(config, &data, std::nullopt);
  config.batch.microbatch = 4;
  TinyRun split(config, &data, std::nullopt);
  EXPECT_EQ(split.step().objectives[0].verdict.action, Action::apply);
  whole.step();
  EXPECT_LT(relative(split.weights(), whole.weights()), 1e-12);
}

TEST(NothingCounted, in_a_batch_of_an_evaluation_changes_nothing_and_in_all_of_them_is_an_error) {
  const SparseTokens some(36, 12, 24), none(36, 0, 36);
  TinyRun run(sparse_config("fp64"), &some, std::nullopt);
  run.parts.plan.evaluate.batch = 12;
  const auto parts = evaluate(run.state, run.parts, some);
  run.parts.plan.evaluate.batch = 36;
  const auto whole = evaluate(run.state, run.parts, some);
  EXPECT_NEAR(parts.values.front().second, whole.values.front().second, 1e-12);
  EXPECT_TRUE(std::isfinite(whole.values.front().second));
  try {
    evaluate(run.state, run.parts, none);
    FAIL() << "an evaluation of no token";
  } catch (const DataError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("36 samples and 0 tokens"), std::string::npos) << text;
  }
}

TEST(NothingCounted, in_all_of_an_evaluation_ends_the_run_once_it_is_saved) {
  const SparseTokens some(36, 12, 24), none(36, 0, 36);
  TinyRun run(sparse_config("fp64"), &some, std::nullopt);
  run.parts.plan.evaluate.every = 1;
  run.parts.plan.evaluate.batch = 12;
  const TemporaryFolder folder;
  EXPECT_THROW(train_loop(run.state, run.parts,
                          {.train = some, .eval = &none, .checkpoints = folder.path()}),
               DataError);
  const auto last = latest_checkpoint(folder.path());
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->filename(), "step-1");
}

// Issue 26: the run ended if it could not note that a checkpoint is complete.
TEST(Saved, checkpoints_count_also_where_that_cannot_be_noted) {
  const SparseTokens data(36, 36, 36);
  auto config = sparse_config("fp64");
  config.run.steps = 2;
  TinyRun run(config, &data, std::nullopt);
  const TemporaryFolder folder;
  LoopInputs inputs{.train = data, .checkpoints = folder.path()};
  inputs.saved = [] { throw InputError("[file] no room"); };
  std::string told;
  const LogSink before = set_log_sink([&](std::string_view line) { told += line; });
  EXPECT_NO_THROW(train_loop(run.state, run.parts, inputs));
  set_log_sink(before);
  EXPECT_EQ(latest_checkpoint(folder.path())->filename(), "step-2");
  TANREN_EXPECT_CONTAINS(told, "[file] no room; ");
  TANREN_EXPECT_CONTAINS(told, "step-2 is complete all the same");
}

// Two terms with their own counts, and an objective for each.
struct Two : torch::nn::Module {
  Two() {
    a = register_parameter("a", at::ones({3}));
    b = register_parameter("b", at::ones({3}));
  }
  at::Tensor a, b;
};

Task two_objectives(const std::string& first, const std::string& second) {
  auto net = std::make_shared<Two>();
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net](const Batch& batch) -> Terms {
    const auto n = static_cast<double>(batch.size());
    return {{"of_a", net->a.square().sum() * n, "samples"},
            {"of_b", net->b.square().sum(), "boxes"}};
  };
  phase.objectives = {{.name = first, .terms = {{"of_a"}}, .parameters = {"a"}},
                      {.name = second, .terms = {{"of_b"}}, .parameters = {"b"}}};
  task.phases = {phase};
  task.predict = [forward = phase.forward](const Batch& batch) {
    return Prediction{.terms = forward(batch), .outputs = {}, .targets = {}};
  };
  return task;
}

TEST(NothingCounted, by_one_of_two_terms_of_an_evaluation_leaves_it_out_and_is_told_once) {
  TinyRun run(tiny_config("mlp"), nullptr, two_objectives("first", "second"));
  run.parts.plan.evaluate.batch = 16;
  std::vector<std::string> lines;
  const LogSink before = set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  std::string told;
  const auto report = evaluate(run.state, run.parts, *run.dataset, &told);
  evaluate(run.state, run.parts, *run.dataset, &told);
  set_log_sink(before);
  EXPECT_EQ(report.values.front().first, "loss");
  EXPECT_NEAR(report.values.front().second, 3, 1e-12);  // the squares of `a`
  ASSERT_EQ(lines.size(), 1U);
  TANREN_EXPECT_CONTAINS(lines[0], "64 samples and 0 boxes to divide of_b by");
}

TEST(NothingCounted, skips_the_objectives_whose_terms_it_divides_and_no_other) {
  TinyRun run(tiny_config("mlp"), nullptr, two_objectives("first", "second"));
  GlobalBatch batch = run.loader->next();
  batch.counts["boxes"] = 0;
  batch.counts["unused"] = 0;
  const TensorMap before = run.state.model_tensors();
  const at::Tensor a = before.at("a").clone(), b = before.at("b").clone();
  const StepReport report = run.step(batch);
  EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
  EXPECT_EQ(report.objectives[1].verdict.action, Action::skip);
  EXPECT_EQ(name(report.objectives[1].verdict.cause), "nothing counted");
  EXPECT_FALSE(at::equal(run.state.model_tensors().at("a"), a));
  EXPECT_TRUE(at::equal(run.state.model_tensors().at("b"), b));
}

// A frozen batch norm in training mode, whose parameters the patterns of both objectives match.
struct TwoBehindNorm : Two {
  TwoBehindNorm() : norm(register_module("norm", torch::nn::BatchNorm1d(1))) {
    for (auto& parameter : norm->parameters()) parameter.set_requires_grad(false);
  }
  torch::nn::BatchNorm1d norm;
};

TEST(NothingCounted, leaves_a_buffer_to_the_objective_that_is_applied) {
  for (const bool first_is_skipped : {false, true}) {
    auto net = std::make_shared<TwoBehindNorm>();
    Task task = two_objectives("first", "second");
    task.module = net;
    auto& phase = task.phases.front();
    phase.forward = [net](const Batch& batch) -> Terms {
      const at::Tensor seen = net->norm(batch["inputs"].reshape({-1, 1})).sum();
      return {{"of_a", (net->a * seen).sum(), "samples"}, {"of_b", net->b.sum() * seen, "boxes"}};
    };
    for (auto& objective : phase.objectives) objective.parameters.emplace_back("norm.*");
    if (first_is_skipped) std::swap(phase.objectives[0], phase.objectives[1]);
    TinyRun run(tiny_config("mlp"), nullptr, task);
    GlobalBatch batch = run.loader->next();
    batch.counts["boxes"] = 0;
    const at::Tensor before = net->norm->running_mean.clone();
    const StepReport report = run.step(batch);
    EXPECT_EQ(report.objectives[first_is_skipped ? 0 : 1].verdict.action, Action::skip);
    EXPECT_EQ(report.objectives[first_is_skipped ? 1 : 0].verdict.action, Action::apply);
    EXPECT_FALSE(at::equal(net->norm->running_mean, before)) << first_is_skipped;
  }
}

TEST(NothingCounted, in_a_whole_epoch_is_an_error_and_no_endless_run) {
  const SparseTokens data(36, 0, 36);
  auto config = sparse_config("fp64");
  config.run.steps = 5;
  TinyRun run(config, &data, std::nullopt);
  std::atomic<bool> stop = false;
  struct Limit : Sink {
    explicit Limit(std::atomic<bool>& flag) : stop(flag) {}
    void step(const StepReport& report) override { stop = report.attempt >= 20; }
    std::atomic<bool>& stop;
  } limit(stop);
  run.parts.stop = &stop;
  const TemporaryFolder folder;
  EXPECT_THROW(train_loop(run.state, run.parts,
                          {.train = data, .checkpoints = folder.path(), .sinks = {&limit}}),
               DataError);
  EXPECT_EQ(run.state.attempt, 3);
  EXPECT_TRUE(latest_checkpoint(folder.path()).has_value());  // the state is saved
}

// One batch per epoch counts. More batches than an epoch has can lie between two that count.
TEST(NothingCounted, in_a_row_of_batches_over_the_end_of_an_epoch_is_no_error) {
  const SparseTokens data(36, 1, 36);
  auto config = sparse_config("fp64");
  config.data.shuffle = true;
  config.run.steps = 20;
  TinyRun run(config, &data, std::nullopt);
  struct Row : Sink {
    void step(const StepReport& report) override {
      const bool skipped = report.objectives[0].verdict.action == Action::skip;
      row = skipped ? row + 1 : 0;
      longest = std::max(longest, row);
    }
    int row = 0, longest = 0;
  } rows;
  EXPECT_NO_THROW(train_loop(run.state, run.parts, {.train = data, .sinks = {&rows}}));
  EXPECT_EQ(run.state.step(), 20);
  EXPECT_GE(rows.longest, 3) << "no row was as long as an epoch";
}

TEST(ObjectiveNames, that_a_checkpoint_could_not_tell_apart_are_refused) {
  const auto refused = [](const std::string& first, const std::string& second) -> std::string {
    try {
      TinyRun run(tiny_config("mlp"), nullptr, two_objectives(first, second));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string text = refused("gan", "gan.critic");
  EXPECT_NE(text.find("train.gan and train.gan.critic"), std::string::npos) << text;
  EXPECT_NE(refused("gan.critic", "gan"), "");
  EXPECT_NE(refused("gan", "gan"), "");
  EXPECT_EQ(refused("gan.maker", "gan.critic"), "");
  EXPECT_EQ(refused("gan", "gan_critic"), "");
}

}  // namespace
}  // namespace tanren::testing
