// Runs of packages. The weights are those of the same torch module in one piece, for any split,
// number of ranks and memory shortage. Issue 30.
#include "tests/support/hand_package.h"
#include "tests/support/loop_run.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include "tanren/anatomy/rehearsal.h"
#include "tanren/base/error.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/forecast/model_table.h"
#include "tanren/forecast/predict.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/model_description.h"
#include "tanren/interop/python_folder.h"
#include "tanren/interop/whole_model.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/package.h"
#include "tanren/predict/described_model.h"
#include "tanren/run/start_files.h"
#include "tanren/train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <regex>
#include <tuple>
#include <vector>

namespace tanren::testing {
namespace {

RunConfig package_config(const std::filesystem::path& package) {
  auto config = tiny_config("mlp");
  config.run.device = "cpu";
  config.model = {.kind = "package", .path = package.string()};
  config.batch.global_batch = "14";
  config.clip.norm = 0.1;  // below every gradient
  config.parallel.first_bucket_mb = 1.0 / 1024;
  config.parallel.bucket_mb = 4.0 / 1024;
  return config;
}

// The weights after 5 updates on the first of `world_size` ranks; all have the same.
at::Tensor trained(const RunConfig& config, int world_size,
                   const std::function<Task()>& make_task = {}) {
  const TokenData data(38);
  std::vector<at::Tensor> weights(static_cast<size_t>(world_size));
  const auto open_windows = std::make_shared<std::atomic<int>>(0);
  on_engine("threads", world_size, [&](Communicator& comm) {
    RankRun run(config, data, comm, make_task, open_windows);
    for (int i = 0; i < 5; ++i) {
      const StepReport report = run.step();
      EXPECT_EQ(report.objectives[0].verdict.action, Action::apply);
      EXPECT_GT(report.objectives[0].grad_norm, config.clip.norm) << "clipping does nothing";
    }
    weights[static_cast<size_t>(comm.rank())] = run.weights();
  });
  for (const at::Tensor& own : weights) EXPECT_TRUE(at::equal(own, weights[0])) << "ranks differ";
  return weights[0];
}

using PackageCombination = std::tuple<bool, int, int64_t>;

class PackageRanks : public ::testing::TestWithParam<PackageCombination> {
 protected:
  // Makes a rank's share of 14 samples 3 microsteps of different sizes, or one microstep.
  static int64_t microbatch(bool is_split, int ranks) {
    const int64_t share = (14 + ranks - 1) / ranks;
    return is_split ? share / 3 + 1 : share;
  }
  TemporaryFolder folder_;
};

TEST_P(PackageRanks, train_as_the_module_in_one_piece) {
  const auto [is_split, ranks, zero] = GetParam();
  auto config = package_config(write_hand_package(folder_.path()));
  static const at::Tensor expected = trained(config, 1, [] { return hand_task({}); });
  config.batch.microbatch = microbatch(is_split, ranks);
  config.parallel.zero = zero;
  const double error = relative(trained(config, ranks), expected);
  std::printf("package, %s, %d ranks, zero %d: weights %.1e\n", is_split ? "split" : "whole", ranks,
              static_cast<int>(zero), error);
  EXPECT_LT(error, 1e-10);
}

TEST_P(PackageRanks, train_as_the_module_with_batch_norm_at_the_same_split) {
  const auto [is_split, ranks, zero] = GetParam();
  const HandPackage options{.name = "norm"};
  auto config = package_config(write_hand_package(folder_.path(), options));
  config.batch.microbatch = microbatch(is_split, ranks);
  const at::Tensor expected = trained(config, ranks, [&] { return hand_task(options); });
  config.parallel.zero = zero;
  EXPECT_LT(relative(trained(config, ranks), expected), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(All, PackageRanks,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2, 3),
                                            ::testing::Values(0, 1, 2)));

class PackageRun : public Loop {
 protected:
  RunConfig config_of(const HandPackage& options) {
    auto config = package_config(write_hand_package(folder_.path(), options));
    config.run.steps = 6;
    config.batch.global_batch = "8";
    config.data.train.fields = {"inputs: int[12] in [0, 22]", "labels: int[12] in [0, 22]"};
    return config;
  }
  std::string log(const std::string& folder) const {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    return std::regex_replace(read_file(folder_.path() / folder / "log.jsonl"), timing, "");
  }
  TensorMap weights(const std::string& folder) const {
    const auto last = latest_checkpoint(folder_.path() / folder / "checkpoints");
    return read_checkpoint(last.value()).model.tensors;
  }
};

TEST_F(PackageRun, goes_on_bitwise_after_a_stop_at_any_step) {
  auto config = config_of({.name = "norm"});
  config.batch.microbatch = 3;
  config.checkpoint.every = 2;
  EXPECT_EQ(go(config, "whole").loop.ending, Ending::finished);
  const TensorMap expected = weights("whole");
  for (const int64_t step : {1, 2, 3, 4, 5}) {
    const std::string folder = "stopped-" + std::to_string(step);
    auto first = config;
    first.run.stop_after = step;
    EXPECT_EQ(go(first, folder).loop.ending, Ending::stopped);
    EXPECT_EQ(go(config, folder).loop.ending, Ending::finished);
    EXPECT_EQ(log("whole"), log(folder));
    for (const auto& [name, tensor] : weights(folder)) {
      EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name << ", stopped at " << step;
    }
  }
}

TEST_F(PackageRun, trains_around_frozen_parameters_as_the_module) {
  auto config = config_of({});
  config.model.freeze = {"hidden.*"};
  const TokenData data(38);
  const Task task = hand_task({});
  for (const auto& item : task.module->named_parameters()) {
    if (item.key().starts_with("hidden.")) item.value().set_requires_grad(false);
  }
  TinyRun module(config, &data, task);
  module.steps(5);
  config.batch.microbatch = 3;
  TinyRun package(config, &data, std::nullopt);
  package.steps(5);
  EXPECT_LT(relative(package.weights(), module.weights()), 1e-10);
  const auto trained = package.state.task.module->named_parameters();
  const TensorMap begun = hand_values({});
  EXPECT_TRUE(at::equal(trained["hidden.weight"], begun.at("hidden.weight")));
  EXPECT_FALSE(at::equal(trained["embedding.weight"], begun.at("embedding.weight")));
}

TEST_F(PackageRun, averages_and_evaluates_in_between_as_the_module) {
  const HandPackage options{.name = "norm"};
  auto config = config_of(options);
  config.batch.microbatch = 3;
  config.average.kind = "ema";
  config.average.buffers = "average";
  const TokenData data(38);
  TinyRun package(config, &data, std::nullopt), module(config, &data, hand_task(options));
  const auto evaluated = [&](TinyRun& run) {
    run.step();
    const EvaluationReport report = evaluate(run.state, run.parts, data);
    EXPECT_TRUE(report.averaged);
    return report.values.front().second;
  };
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(evaluated(package), evaluated(module), 1e-10) << i;
  EXPECT_LT(relative(package.weights(), module.weights()), 1e-10);
  const TensorMap expected = module.state.average_state().tensors;
  const TensorMap averages = package.state.average_state().tensors;
  EXPECT_EQ(averages.size(), expected.size());
  for (const auto& [name, tensor] : averages) {
    EXPECT_LT((tensor - expected.at(name)).norm().item<double>(), 1e-10) << name;
  }
}

TEST_F(PackageRun, evaluates_to_the_loss_that_it_trains) {
  const HandPackage options;
  auto config = config_of(options);
  const TokenData data(8);  // one batch
  ObjectiveOptions& loss = config.objectives["loss"];
  loss.optimizer = config.optimizer;
  loss.schedule = config.schedule;
  loss.clip = config.clip;
  for (const double weight : {kHandActivity, 3.0}) {
    loss.weights = {{"activity", weight}};
    TinyRun run(config, &data, std::nullopt);
    const double evaluated = evaluate(run.state, run.parts, data).values.front().second;
    const StepReport report = run.step();
    EXPECT_NEAR(evaluated, report.objectives[0].loss, 1e-12);
    double plain = 0;
    for (const auto& [name, value] : report.objectives[0].terms) plain += value;
    EXPECT_GT(std::abs(plain - evaluated), 1e-6) << "weights make no difference";
  }
}

// The weights of a run in fp16 say little: its updates are compared.
TEST_F(PackageRun, skips_what_overflows_as_the_module_and_leaves_no_trace) {
  const HandPackage options{.name = "half_norm", .precision = "fp16"};
  auto config = config_of(options);
  config.batch.microbatch = 3;
  config.precision.mode = "fp16";
  config.precision.initial_scale = "67108864";  // 2^26: the first attempts overflow
  config.optimizer.kind = "sgd";
  const TokenData data(38);
  TinyRun package(config, &data, std::nullopt), module(config, &data, hand_task(options));
  const at::Tensor begun = package.weights();
  EXPECT_EQ(package.step().objectives[0].verdict.cause, Cause::overflow);
  EXPECT_EQ(module.step().objectives[0].verdict.cause, Cause::overflow);
  EXPECT_TRUE(at::equal(package.weights(), begun));
  const TensorMap values = hand_values(options);
  for (const auto& item : package.state.task.module->named_buffers()) {
    EXPECT_TRUE(at::equal(item.value(), values.at(item.key()))) << item.key();
  }
  const auto skips_until_applied = [](TinyRun& run, int count) {
    int skips = 0;
    for (int applied = 0; applied < count && skips < 40;) {
      ++(run.step().objectives[0].verdict.action == Action::apply ? applied : skips);
    }
    return skips;
  };
  EXPECT_EQ(skips_until_applied(package, 5), skips_until_applied(module, 5));
  EXPECT_EQ(package.objective().step, 5);
  EXPECT_EQ(package.objective().scaler.scale(), module.objective().scaler.scale());
  EXPECT_LT(relative(package.weights() - begun, module.weights() - begun), 0.02);
}

TEST_F(PackageRun, goes_on_bitwise_with_averages_a_loss_scale_and_evaluations) {
  auto config = config_of({.name = "half_norm", .precision = "fp16"});
  config.precision.mode = "fp16";
  config.precision.initial_scale = "67108864";
  config.precision.growth_interval = 3;
  config.average.kind = "ema";
  config.data.eval = config.data.train;
  config.evaluate.every = 2;
  config.checkpoint.every = 2;
  EXPECT_GT(go(config, "whole").summary.skipped_steps, 0);
  auto first = config;
  first.run.stop_after = 3;
  EXPECT_EQ(go(first, "stopped").loop.ending, Ending::stopped);
  EXPECT_EQ(go(config, "stopped").loop.ending, Ending::finished);
  expect_same("whole", "stopped");
  const auto last = [&](const std::string& folder) {
    return read_checkpoint(latest_checkpoint(folder_.path() / folder / "checkpoints").value());
  };
  const auto expected = last("whole"), got = last("stopped");
  for (const auto& [name, tensor] : expected.model.tensors) {
    EXPECT_TRUE(at::equal(got.model.tensors.at(name), tensor)) << name;
  }
  EXPECT_GT(expected.average.tensors.size(), 0u);
  for (const auto& [name, tensor] : expected.average.tensors) {
    EXPECT_TRUE(at::equal(got.average.tensors.at(name), tensor)) << name;
  }
}

TEST_F(PackageRun, goes_on_with_its_own_package_alone) {
  auto config = config_of({});
  config.checkpoint.every = 1;
  config.data.eval = config.data.train;
  auto first = config;
  first.run.stop_after = 2;
  EXPECT_EQ(go(first, "run").loop.ending, Ending::stopped);
  const std::filesystem::path package = config.model.path;
  const nlohmann::json own = hand_manifest({}, package);
  nlohmann::json other = own;
  other["class"] = "OtherModel";
  const std::string of_own = program_of(config.model)->checksum;
  write_manifest(package, other);
  const std::string of_other = program_of(config.model)->checksum;
  const std::filesystem::path run = folder_.path() / "run";
  auto fork = config;
  fork.run.fork_from = run.string();
  const std::vector<std::function<void()>> uses = {
      [&] { go(config, "run"); },
      [&] { go(fork, "fork"); },
      [&] { plan_only(config, test_registry(), run); },
      [&] { plan_only(fork, test_registry()); },
      [&] {
        evaluate_checkpoint(config, chosen_checkpoint(config, run), test_registry(), nullptr);
      },
      [&] {
        const auto last = latest_checkpoint(run / "checkpoints");
        const Rehearsal of_rates(config, {}, open_datasets(config.data, {}), {}, last.value());
      },
      [&] { described_model(run, {"model.path=" + config.model.path}, test_registry()); }};
  for (size_t i = 0; i < uses.size(); ++i) {
    const std::string text = error_of<ConfigError>(uses[i]);
    TANREN_EXPECT_CONTAINS(text, "run began with the package of checksum " + of_own +
                                     ", and the package in model.path has " + of_other);
    TANREN_EXPECT_CONTAINS(text, "start anew with model.init_from");
    EXPECT_EQ(text.find('\n'), std::string::npos) << i;
  }
  write_manifest(package, own);
  for (const size_t i : {1, 2, 3, 4, 5, 6}) EXPECT_NO_THROW(uses[i]()) << i;
  EXPECT_EQ(go(config, "run").loop.ending, Ending::finished);
}

// The check covers the package that was loaded, even if the path names another one by then.
TEST_F(PackageRun, predicts_with_its_own_package_alone_if_it_is_exchanged_meanwhile) {
  auto config = config_of({});
  config.checkpoint.every = 1;
  config.run.stop_after = 2;
  EXPECT_EQ(go(config, "run").loop.ending, Ending::stopped);
  const std::filesystem::path package = config.model.path, run = folder_.path() / "run";
  const nlohmann::json own = hand_manifest({}, package);
  nlohmann::json other = own;
  other["class"] = "OtherModel";
  const auto model = [&] {
    return described_model(run, {"model.path=" + config.model.path}, test_registry());
  };
  DescribedModel kept = model(), exchanged = model();
  EXPECT_NO_THROW(prepared_model(kept, run, test_registry()));
  write_manifest(package, other);
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { prepared_model(exchanged, run, test_registry()); }),
      "run began with the package of checksum ");
  const Task loaded = package_task(package);
  write_manifest(package, own);
  EXPECT_EQ(program_of(config.model, loaded)->checksum, loaded.facts.graph->checksum);
  EXPECT_NE(program_of(config.model)->checksum, loaded.facts.graph->checksum);
}

// A step of other numbers of samples would be refused.
TEST_F(PackageRun, is_planned_within_the_numbers_of_samples_that_its_package_takes) {
  auto config = config_of({});
  config.run.steps = 1;
  int64_t expected = 8;
  const auto planned = [&](int64_t least, int64_t most, int64_t multiple) {
    nlohmann::json manifest = hand_manifest({}, config.model.path);
    manifest["sizes"]["batch"] = {{"min", least}, {"max", most}, {"multiple", multiple}};
    write_manifest(config.model.path, manifest);
    const Plan plan = plan_only(config, test_registry());
    EXPECT_EQ(plan.batch.microbatch, expected);
    for (const PlanLine& line : plan.lines) {
      if (line.key == "predicted_peak") return line.value + ": " + line.reason;
    }
    return std::string();
  };
  TANREN_EXPECT_CONTAINS(planned(4, 64, 4), "by two steps of 4 and 8 samples");
  TANREN_EXPECT_CONTAINS(planned(4, 8, 1), "by two steps of 4 and 8 samples");
  TANREN_EXPECT_CONTAINS(planned(5, 8, 1), "by two steps of 5 and 8 samples");
  TANREN_EXPECT_CONTAINS(planned(8, 8, 1), "by a step of 8 samples");
  TANREN_EXPECT_CONTAINS(planned(3, 64, 4), "by two steps of 4 and 8 samples");
  expected = 4;
  TANREN_EXPECT_CONTAINS(planned(2, 7, 2), "by two steps of 2 and 4 samples");
  EXPECT_EQ(go(config, "run").loop.ending, Ending::finished);
}

// The module would give no gradient to a weight that only this term depends on.
TEST_F(PackageRun, refuses_a_term_that_the_config_gives_the_weight_0) {
  auto config = config_of({});
  config.objectives["loss"].weights["activity"] = 0;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { go(config, "run"); }),
                         "objectives.loss.weights gives activity the weight 0");
}

TEST_F(PackageRun, has_no_table_of_layers) {
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { model_table(config_of({}), {}); }),
                         "a package is not loaded in a dry run; a table of layers");
}

TEST_F(PackageRun, plans_the_precision_of_the_graph_and_says_what_it_is) {
  auto config = config_of({});
  config.precision.mode = "auto";
  config.run.steps = 1;
  go(config, "run");
  EXPECT_EQ(plan_.precision.mode, Mode::fp64);
  std::string reason;
  for (const PlanLine& line : plan_.lines) {
    if (line.key == "graph") reason = line.reason;
  }
  TANREN_EXPECT_CONTAINS(reason, "tokens 2 to 12");
  TANREN_EXPECT_CONTAINS(reason, "it draws nothing");
  config.precision.mode = "bf16";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { go(config, "other"); }),
                         "set precision.mode = \"fp64\"");
}

// Converting needs no compiled code, but loading the model needs model.path.
TEST_F(PackageRun, exports_weights_under_the_names_of_python) {
  auto config = config_of({});
  const std::filesystem::path package = config.model.path;
  write_file(package / "config.json", "{\"model_type\": \"hand\"}");
  go(config, "run");
  const auto file = folder_.path() / "run" / kWholeFile;
  std::filesystem::rename(package, folder_.path() / "elsewhere");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { load_model(file); }), "set model.path");
  const auto folder = folder_.path() / "python";
  const PythonFolder written = write_python_folder(file, folder, std::nullopt, {});
  TANREN_EXPECT_CONTAINS(written.opened_by, "transformers.HandModel.from_pretrained");
  EXPECT_EQ(read_file(folder / "config.json"), "{\"model_type\": \"hand\"}");
  const TensorMap tensors = read_safetensors(folder / "model.safetensors").tensors;
  EXPECT_TRUE(at::equal(tensors.at("head.weight"), tensors.at("embedding.weight")));
  EXPECT_NE(tensors.find("unused.weight"), nullptr);
}

TEST_F(PackageRun, evaluates_a_whole_model_with_the_package_that_trained_it) {
  auto config = config_of({.name = "norm"});
  go(config, "run");
  const auto read = read_safetensors(folder_.path() / "run" / kWholeFile);
  const std::string what = "model.tanren.safetensors";
  const auto description = description_of(read.metadata, what, {"model.path=" + config.model.path},
                                          ModelRegistry().kinds());
  const auto build = [&] {
    return build_described(description.config.model, description.info, read, {}, what,
                           ModelRegistry(), at::kDouble);
  };
  const Task task = build();
  const at::NoGradGuard no_grad;
  const Batch batch = TokenData(38).collate({0, 1, 2}).batch;
  Task written = hand_task({.name = "norm"});
  for (auto& item : written.module->named_parameters()) {
    item.value().copy_(read.tensors.at(item.key()));
  }
  for (auto& item : written.module->named_buffers()) {
    item.value().copy_(read.tensors.at(item.key()));
  }
  EXPECT_LT(relative(task.predict(batch).outputs, written.predict(batch).outputs), 1e-10);
  nlohmann::json manifest = hand_manifest({.name = "norm"}, config.model.path);
  manifest["class"] = "OtherModel";
  write_manifest(config.model.path, manifest);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { build(); }), "trained by another package");
}

class PackageShortage : public PackageRun {
 protected:
  void TearDown() override {
    fail_cpu_allocation(INT64_MAX);
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
};

class PackagePeak : public PackageShortage {};

// The line through 4 and 6 samples predicts the same peak as the line through 1 and 2.
TEST_F(PackagePeak, is_measured_at_numbers_of_samples_that_the_package_takes) {
  auto config = config_of({});
  config.memory.limit = "8GiB";
  const TinyRun run(config);
  const TokenData data(38);
  const auto peak = [&](const nlohmann::json& range, const SampleCounts& counts) {
    nlohmann::json manifest = hand_manifest({}, config.model.path);
    manifest["sizes"]["batch"] = range;
    write_manifest(config.model.path, manifest);
    const StepPredictor predictor([&] { return package_task(config.model.path); }, data,
                                  {.counts = counts});
    Plan plan = run.parts.plan;
    plan.batch.microbatch = plan.batch.per_rank = plan.batch.global_batch = 6;
    const MemoryPrediction prediction = predictor.step(plan);
    EXPECT_EQ(prediction.least_samples, range["min"].get<int64_t>());
    return static_cast<double>(prediction.peak_bytes);
  };
  const double expected = peak({{"min", 1}, {"max", 64}, {"multiple", 1}}, {});
  EXPECT_NEAR(peak({{"min", 4}, {"max", 6}, {"multiple", 2}}, {.most = 6, .multiple = 2}), expected,
              0.01 * expected);
}

// Its graph refuses a batch of one sample.
TEST_F(PackagePeak, of_one_that_takes_2_samples_at_least_is_that_of_the_same_with_1) {
  auto config = config_of({});
  config.memory.limit = "8GiB";
  config.batch.microbatch = 4;
  const TinyRun run(config);
  const TokenData data(38);
  const auto peak = [&](int64_t least, const std::string& how) {
    nlohmann::json manifest = hand_manifest({}, config.model.path);
    manifest["sizes"]["batch"]["min"] = least;
    write_manifest(config.model.path, manifest);
    const StepPredictor predictor([&] { return package_task(config.model.path); }, data);
    const MemoryPrediction prediction = predictor.step(run.parts.plan);
    EXPECT_EQ(prediction.how, how);
    return static_cast<double>(prediction.peak_bytes);
  };
  const double expected = peak(1, "two steps of 1 and 2 samples");
  EXPECT_NEAR(peak(2, "two steps of 2 and 4 samples"), expected, 0.01 * expected);
}

// Each allocation of the second step fails once. A failure inside the graph becomes another error
// outside, from which the step must still recover.
TEST_F(PackageShortage, any_allocation_of_a_step_may_fail_once) {
  auto config = config_of({});
  config.memory.limit = "8GiB";  // installs our allocator
  TinyRun undisturbed(config);
  undisturbed.steps(2);
  const at::Tensor expected = undisturbed.weights();
  int64_t injections = 0, recoveries = 0;
  double worst = 0;
  for (int64_t index = 0;; ++index) {
    TinyRun run(config);
    run.step();
    const GlobalBatch batch = run.loader->next();
    const int64_t live_before = cpu_memory_stats().live_bytes;
    fail_cpu_allocation(index);
    const StepReport report = run.step(batch);
    const bool failed = cpu_allocations_until_failure() < 0;
    fail_cpu_allocation(INT64_MAX);
    EXPECT_EQ(report.objectives[0].step, 2) << index;
    EXPECT_EQ(cpu_memory_stats().live_bytes, live_before) << index;
    worst = std::max(worst, relative(run.weights(), expected));
    if (!failed) break;
    ++injections;
    recoveries += run.parts.recovery->num_failures();
  }
  std::printf("package: %lld allocations failed, %lld microsteps recovered, weights within %.1e\n",
              static_cast<long long>(injections), static_cast<long long>(recoveries), worst);
  EXPECT_GT(recoveries, 20);
  EXPECT_LT(worst, 1e-10);
}

// 8 samples are tried again as 3 and 5, and 5 have no split.
TEST_F(PackageShortage, splits_into_no_fewer_samples_than_the_package_takes) {
  auto config = config_of({});
  nlohmann::json manifest = hand_manifest({}, config.model.path);
  manifest["sizes"]["batch"]["min"] = 3;
  write_manifest(config.model.path, manifest);
  config.memory.limit = "8GiB";
  TinyRun undisturbed(config), run(config);
  run.step();
  undisturbed.step();
  for (int64_t index = 5; run.parts.recovery->num_failures() == 0; index += 5) {
    ASSERT_LT(index, 100) << "no allocation of a microstep failed";
    fail_cpu_allocation(index);
    const StepReport report = run.step();
    fail_cpu_allocation(INT64_MAX);
    EXPECT_EQ(report.microsteps, 1 + run.parts.recovery->num_failures());
    undisturbed.step();
  }
  EXPECT_LT(relative(run.weights(), undisturbed.weights()), 1e-10);
  const GlobalBatch batch = run.loader->next();
  trim_cpu_memory();
  set_cpu_memory_limit(cpu_memory_charged() + (24 << 10));
  const std::string text = error_of<MemoryError>([&] { run.step(batch); });
  set_cpu_memory_limit(0);
  TANREN_EXPECT_CONTAINS(text, "and the model takes at least 3 at once");
}

TEST_F(PackageShortage, does_not_grow_over_100_of_them) {
  auto config = config_of({});
  config.memory.limit = "8GiB";
  config.memory.recovery = "same_split";
  TinyRun run(config);
  run.step();
  int64_t live = 0;
  for (int i = 0; i < 100; ++i) {
    const GlobalBatch batch = run.loader->next();
    if (i == 0) live = cpu_memory_stats().live_bytes;
    fail_cpu_allocation(5 + i % 20);
    run.step(batch);
    fail_cpu_allocation(INT64_MAX);
    EXPECT_EQ(cpu_memory_stats().live_bytes, live) << i;
  }
  EXPECT_GT(run.parts.recovery->num_failures(), 50);
}

}  // namespace
}  // namespace tanren::testing
