// Averaged weights in whole runs never affect the trained weights (PEERS rule 33).
#include "tests/support/gan.h"
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/export.h"
#include "tanren/model/registry.h"
#include "tanren/model/supervised.h"
#include "tanren/optimizer/average.h"
#include "tanren/run/run.h"
#include "tanren/train/estimate_statistics.h"
#include "tanren/train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

namespace tanren::testing {
namespace {

RunConfig averaging_config(const std::string& kind) {
  auto config = tiny_config("convnet");
  config.run.steps = 20;
  config.model.norm = "batch";
  config.average.kind = kind;
  config.data.eval = config.data.train;
  return config;
}

TensorMap copied(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) copies.set(name, tensor.clone());
  return copies;
}

void expect_same(const TensorMap& a, const TensorMap& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << what << name;
}

double loss_of(const EvaluationReport& report) { return report.values.front().second; }

TEST(Average, never_updated_is_not_evaluated_the_raw_weights_are) {
  auto config = averaging_config("swa");
  config.average.start = "15";
  TinyRun run(config);
  run.steps(5);
  const auto report = evaluate(run.state, run.parts, *run.dataset);
  EXPECT_FALSE(report.averaged);
  TinyRun raw([&] {
    auto other = config;
    other.average.kind = "none";
    other.average.start = "auto";
    return other;
  }());
  raw.steps(5);
  EXPECT_EQ(loss_of(report), loss_of(evaluate(raw.state, raw.parts, *raw.dataset)));
}

TEST(Average, changes_nothing_of_the_training_and_is_evaluated_in_its_place) {
  auto config = averaging_config("ema");
  TinyRun with(config);
  config.average.kind = "none";
  TinyRun without(config);
  for (int i = 0; i < 8; ++i) {
    with.step();
    without.step();
    const auto averaged = evaluate(with.state, with.parts, *with.dataset);
    const auto raw = evaluate(without.state, without.parts, *without.dataset);
    EXPECT_TRUE(averaged.averaged);
    EXPECT_FALSE(raw.averaged);
    if (i > 0) {
      EXPECT_NE(loss_of(averaged), loss_of(raw));
    }
  }
  expect_same(with.state.model_tensors(), without.state.model_tensors(), "");
  EXPECT_TRUE(at::equal(with.weights(), without.weights()));
}

TEST(Average, is_the_mean_of_the_weights_after_each_step_batch_norm_included) {
  auto config = averaging_config("swa");
  config.average.start = "3";
  config.average.buffers = "average";
  TinyRun run(config);
  TensorMap sums;
  for (int step = 1; step <= 10; ++step) {
    run.step();
    if (step < 3) continue;
    for (const auto& [name, tensor] : run.state.model_tensors()) {
      if (!tensor.is_floating_point()) continue;
      const auto* sum = sums.find(name);
      sums.set(name, sum == nullptr ? tensor.clone() : *sum + tensor);
    }
  }
  const auto average = run.state.average_state();
  ASSERT_EQ(average.tensors.size(), sums.size());
  for (const auto& [name, sum] : sums) {
    EXPECT_LT(relative(average.tensors.at(name), sum / 8), 1e-12) << name;
  }
}

TEST(Average, is_not_touched_by_a_skipped_update) {
  auto config = averaging_config("ema");
  config.guard.nan_loss = "skip";
  TinyRun run(config);
  run.steps(3);
  const auto before = copied(run.state.average_state().tensors);
  const auto values = run.state.average_state().values;
  auto batch = run.loader->next();
  TensorMap fields;
  for (const auto& [name, field] : batch.local.fields) {
    fields.set(name, name == "inputs"
                         ? at::full_like(field, std::numeric_limits<double>::infinity())
                         : field);
  }
  batch.local.fields = fields;
  EXPECT_EQ(run.step(batch).objectives.front().verdict.action, Action::skip);
  expect_same(run.state.average_state().tensors, before, "");
  EXPECT_EQ(run.state.average_state().values, values);
}

TEST(Average, gives_the_raw_weights_back_bitwise_when_an_evaluation_throws) {
  auto config = averaging_config("ema");
  TinyRun run(config);
  run.steps(4);
  const auto raw = copied(run.state.model_tensors());
  const auto average = copied(run.state.average_state().tensors);
  const auto predict = run.state.task.predict;
  int calls = 0;
  run.state.task.predict = [&](const Batch& batch) {
    if (++calls == 2) throw RunError("in the middle of an evaluation");
    return predict(batch);
  };
  EXPECT_THROW(evaluate(run.state, run.parts, *run.dataset), RunError);
  expect_same(run.state.model_tensors(), raw, "raw ");
  expect_same(run.state.average_state().tensors, average, "average ");
  for (const auto& module : run.state.task.module->modules()) EXPECT_TRUE(module->is_training());
  run.state.task.predict = predict;
  run.steps(2);  // the run continues
}

TEST(Average, resumed_goes_on_from_the_raw_weights_and_needs_its_own) {
  const auto config = averaging_config("ema");
  TinyRun whole(config);
  whole.steps(9);
  TinyRun first(config);
  first.steps(4);
  State model;
  model.tensors = copied(first.state.model_tensors());
  TinyRun second(config);
  EXPECT_THROW(second.state.load(second.parts.device, model, first.state.optimizer_state(),
                                 first.state.run_state(first.parts.device)),
               CheckpointError)
      << "a run with averages does not start from a checkpoint without";
  second.state.load(second.parts.device, model, first.state.optimizer_state(),
                    first.state.run_state(first.parts.device), first.state.average_state());
  second.use_loader(0, 1);
  evaluate(second.state, second.parts, *second.dataset);
  second.steps(5);
  EXPECT_TRUE(at::equal(second.weights(), whole.weights()));
  expect_same(second.state.average_state().tensors, whole.state.average_state().tensors, "");
}

TEST(Average, of_swa_holds_the_learning_rate_it_was_given) {
  auto config = averaging_config("swa");
  config.schedule.kind = "cosine";
  config.average.start = "5";
  config.average.learning_rate = 0.003;
  TinyRun run(config);
  const auto reports = run.steps(8);
  EXPECT_NE(reports[4].objectives.front().learning_rate, 0.003);
  for (int i = 5; i < 8; ++i) EXPECT_EQ(reports[i].objectives.front().learning_rate, 0.003);
}

// The model and batches of tests/fixtures/make/average_fixtures.py.
struct Small : torch::nn::Module {
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Small() {
    linear = register_module("linear", torch::nn::Linear(5, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
  }
};

TEST(Average, estimates_batch_norm_as_torchs_update_bn_and_leaves_the_model_alone) {
  const auto fixture =
      read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/average.safetensors").tensors;
  const auto net = std::make_shared<Small>();
  {
    const at::NoGradGuard no_grad;
    for (auto& item : net->named_parameters()) {
      item.value().copy_(fixture.at("update_bn/model/" + item.key()));
    }
  }
  TensorMap fields;
  fields.set("inputs", fixture.at("update_bn/batches").flatten(0, 1).contiguous());
  fields.set("labels", at::zeros({24}, at::kLong));
  const TensorDataset data(fields, {.input_shape = {5}, .outputs = 3}, "data.train");
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net](const Batch& batch) -> Terms {
    const auto& inputs = batch["inputs"];
    const auto out = net->norm(net->linear(inputs.to(net->linear->weight.scalar_type())));
    return {{"zero", (out * 0).sum()}};
  };
  task.phases = {phase};
  auto config = tiny_config("mlp");
  config.precision.mode = "fp32";
  config.average.kind = "swa";
  config.average.start = "0";
  config.run.steps = 4;
  config.data.shuffle = false;
  config.batch.global_batch = "8";
  config.optimizer.weight_decay = 0;
  TinyRun run(config, &data, task);
  EXPECT_EQ(run.parts.plan.average.buffers, AverageBuffers::estimate);
  run.step();  // zero gradients: only the running statistics change
  const auto raw = copied(run.state.model_tensors());
  estimate_statistics(run.state, run.parts, data);
  expect_same(run.state.model_tensors(), raw, "raw ");
  EXPECT_TRUE(net->norm->options.momentum().has_value());
  const auto average = run.state.average_state().tensors;
  for (const char* name : {"norm.running_mean", "norm.running_var"}) {
    const auto& expected = fixture.at(std::string("update_bn/model/") + name);
    EXPECT_LT(relative(average.at(name), expected), 1e-6) << name;
    EXPECT_FALSE(at::equal(raw.at(name), average.at(name)));
  }
  net->norm->eval();  // frozen: the estimate must not change its statistics
  const auto before = copied(average);
  run.parts.plan.average.estimate_batches = 1;
  estimate_statistics(run.state, run.parts, data);
  expect_same(run.state.average_state().tensors, before, "frozen ");
}

TEST(Average, in_a_state_that_only_evaluates_takes_the_weights_place_and_measures_the_same) {
  auto config = averaging_config("swa");
  config.average.start = "2";
  TinyRun run(config);
  run.steps(6);
  const TensorMap before = copied(run.state.averaged_tensors());
  ASSERT_TRUE(estimate_statistics(run.state, run.parts, *run.dataset));
  const TensorMap expected = run.state.averaged_tensors();
  bool changed = false;
  for (const auto& [name, tensor] : expected) {
    changed = changed || !at::equal(tensor, before.at(name));
  }
  EXPECT_TRUE(changed);
  RunState alone = build_run_state(build_task(config, ModelRegistry(), *run.dataset), run.parts,
                                   /*trains=*/false);
  EXPECT_TRUE(alone.averages().empty());
  alone.load_model(before, "the averages");
  ASSERT_TRUE(measure_statistics(alone, run.parts, *run.dataset, before));
  expect_same(alone.model_tensors(), expected, "alone ");
}

RunConfig averaged_gan_config() {
  auto config = gan_config();
  config.average.kind = "ema";
  config.run.device = "cpu";
  config.data.eval = config.data.train;
  return config;
}

// The state after three updates, in which the first objective has an average and the generator has
// none.
Snapshot snapshot_with_one_average(TinyRun& run) {
  run.steps(3);
  auto& objectives = run.state.phases.front().objectives;
  const TinyRun fresh(averaged_gan_config(), nullptr, one_forward_gan(/*every=*/1));
  objectives[1].average->load(fresh.state.phases.front().objectives[1].average->state());
  EXPECT_EQ(objectives[1].average->num_updates(), 0);
  EXPECT_GT(objectives[0].average->num_updates(), 0);
  Snapshot snapshot;
  snapshot.model.tensors = run.state.model_tensors();
  snapshot.optimizer = run.state.optimizer_state();
  snapshot.average = run.state.average_state();
  snapshot.run = run.state.run_state(run.parts.device);
  return snapshot;
}

// Issue 26: the start weights of an objective without an average counted as its average.
TEST(Average, of_one_objective_leaves_the_weights_of_another_without_one_raw) {
  TinyRun run(averaged_gan_config(), nullptr, one_forward_gan(/*every=*/1));
  const Snapshot snapshot = snapshot_with_one_average(run);
  const TemporaryFolder folder;
  const auto step = write_checkpoint(folder.path(), 3, snapshot, 1, {});
  const SafetensorsFile read = checkpoint_weights(step, /*wants_average=*/true);
  EXPECT_EQ(read.metadata.at("weights"), "averaged");
  expect_same(read.tensors, run.state.averaged_tensors(), "averaged ");
  EXPECT_TRUE(at::equal(read.tensors.at("generator.weight"),
                        snapshot.model.tensors.at("generator.weight")));
  EXPECT_FALSE(at::equal(read.tensors.at("critic_score.weight"),
                         snapshot.model.tensors.at("critic_score.weight")));
}

// Step folders did not always name the tensors that have no average.
TEST(Average, of_one_objective_in_an_older_step_folder_leaves_the_other_raw_in_an_evaluation) {
  const RunConfig config = averaged_gan_config();
  TinyRun run(config, nullptr, one_forward_gan(/*every=*/1));
  Snapshot snapshot = snapshot_with_one_average(run);
  ModelRegistry models;
  models.add("gan", [](const ModelOptions&, const DataInfo&) {
    Task task = one_forward_gan(/*every=*/1);
    const auto net = std::dynamic_pointer_cast<GanNet>(task.module);
    task.predict = [net](const Batch& batch) -> Prediction {
      const at::Tensor made = net->generate(batch);
      return {.terms = {sum_of("made", made), sum_of("score", net->criticise(made))}};
    };
    return task;
  });
  const TemporaryFolder folder;
  const auto loss = [&](const std::string& name) {
    const auto step = write_checkpoint(folder.path() / name / "checkpoints", 3, snapshot, 1, {});
    return evaluate_checkpoint(config, step, Registry(models), nullptr).report.values.at(0).second;
  };
  const double expected = loss("named");
  const TensorMap named = averages_in(snapshot.average, nullptr, "");
  EXPECT_FALSE(named.empty());
  ASSERT_EQ(snapshot.average.values.erase("train.generator.no_average"), 1u);
  EXPECT_EQ(loss("older"), expected);
  // An export of the run knows its objectives. Without them, reading the folder is an error.
  expect_same(averages_in(snapshot.average, &run.state, ""), named, "older ");
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] {
                           const auto step = folder.path() / "older" / "checkpoints";
                           (void)checkpoint_weights(*latest_checkpoint(step), true);
                         }),
                         "take the raw weights with --set average.evaluate=false");
}

// One tensor that has two names.
struct TwoNames : torch::nn::Module {
  at::Tensor weight;
  TwoNames() {
    const auto a = register_module("a", std::make_shared<torch::nn::Module>());
    const auto b = register_module("b", std::make_shared<torch::nn::Module>());
    weight = a->register_parameter("weight", at::randn({5, 64}) / 8);
    b->register_parameter("weight", weight);
  }
  at::Tensor forward(const at::Tensor& x) const { return at::linear(x.flatten(1), weight); }
};

RunConfig two_names_config() {
  auto config = tiny_config("two_names");
  config.run.device = "cpu";
  config.run.steps = 4;
  config.precision.mode = "fp32";
  config.average.kind = "ema";
  config.checkpoint.every = config.evaluate.every = 2;
  config.data.eval = config.data.train;
  return config;
}

// Loading goes name by name, so an evaluation uses what the last name has.
TEST(Average, of_a_tensor_with_two_names_is_in_files_under_both) {
  ModelRegistry models;
  models.add("two_names", [](const ModelOptions& options, const DataInfo& info) {
    return supervised(std::make_shared<TwoNames>(), options, info);
  });
  const Registry registry(models);
  const TemporaryFolder folder;
  for (const std::string scheme : {"none", "weights"}) {
    auto config = two_names_config();
    config.quantize.scheme = scheme;
    const auto place = folder.path() / scheme;
    const RunOutput output = run({.config = config, .folder = place, .sinks = {}}, registry);
    double loss = 0;
    for (const auto& [name, value] : output.summary.evaluate) loss += name == "loss" ? value : 0;
    ASSERT_GT(loss, 0);
    const auto step = *latest_checkpoint(place / "checkpoints");
    const auto evaluated = [&](const std::filesystem::path& weights) {
      return loss_of(evaluate_checkpoint(config, weights, registry, nullptr).report);
    };
    EXPECT_NEAR(evaluated(step), loss, 1e-6 * loss) << scheme;
    const TensorMap read = checkpoint_weights(step, /*wants_average=*/true).tensors;
    EXPECT_TRUE(at::equal(read.at("a.weight"), read.at("b.weight"))) << scheme;
    const TensorMap raw = read_checkpoint(step).model.tensors;
    EXPECT_FALSE(at::equal(read.at("a.weight"), raw.at("a.weight"))) << scheme;
    if (scheme == "none") {
      EXPECT_NEAR(evaluated(place / "model.safetensors"), loss, 1e-6 * loss);
    } else {  // both names have the same bytes, or loading fails
      const auto of_file = evaluate_whole_model(output.quantized, "", {}, registry, nullptr);
      EXPECT_NEAR(loss_of(of_file.report), loss, 1e-3 * loss);
    }
    config.average.evaluate = false;
    EXPECT_GT(std::abs(evaluated(step) - loss), 1e-5 * loss) << scheme;
  }
}

TEST(Average, of_a_tensor_with_two_names_is_under_one_in_an_older_step_folder) {
  auto config = two_names_config();
  config.model.kind = "mlp";  // the task is given
  const DataInfo info{.input_shape = {1, 8, 8}, .outputs = 5};
  TinyRun run(config, nullptr, supervised(std::make_shared<TwoNames>(), config.model, info));
  run.steps(3);
  const State now = run.state.average_state();
  State older{{}, now.values};
  older.tensors.set("a.weight", now.tensors.at("a.weight"));
  expect_same(averages_in(older, &run.state, ""), now.tensors, "older ");
  EXPECT_EQ(now.tensors.size(), 2u);
}

}  // namespace
}  // namespace tanren::testing
