#include "tanren/anatomy/rehearsal.h"

#include "tanren/anatomy/advice.h"
#include "tanren/anatomy/anatomy.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/supervised.h"
#include "tanren/run/run.h"
#include "tests/support/block_config.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

namespace fs = std::filesystem;

struct KeptReports : Sink {
  std::vector<StepReport> reports;
  void step(const StepReport& report) override { reports.push_back(report); }
};

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path()] = read_file(entry.path());
  }
  return files;
}

Datasets datasets_of(const RunConfig& config) {
  return open_datasets(config.data, Registry().datasets);
}

void expect_same_update(const StepReport& run, const StepReport& rehearsed) {
  EXPECT_EQ(run.attempt, rehearsed.attempt);
  EXPECT_EQ(run.step, rehearsed.step);
  const ObjectiveReport& one = run.objectives.front();
  const ObjectiveReport& other = rehearsed.objectives.front();
  EXPECT_EQ(one.loss, other.loss);
  EXPECT_EQ(one.grad_norm, other.grad_norm);
  EXPECT_EQ(one.learning_rate, other.learning_rate);
}

TEST(RehearsalTest, makes_the_updates_of_the_run_also_from_a_checkpoint_and_changes_no_file) {
  const testing::TemporaryFolder folder;
  RunConfig config = testing::block_config("gpt2", "fp32");
  config.run.steps = 4;
  config.schedule.kind = "cosine";
  KeptReports run_reports;
  run({.config = config, .folder = folder.path() / "whole", .sinks = {&run_reports}}, Registry());
  ASSERT_EQ(run_reports.reports.size(), 4u);
  RunConfig cut = config;
  cut.run.stop_after = 2;
  run({.config = cut, .folder = folder.path() / "cut", .sinks = {}}, Registry());
  const auto checkpoint = latest_checkpoint(folder.path() / "cut/checkpoints");
  ASSERT_TRUE(checkpoint);
  const auto before = files_in(folder.path());
  {
    Rehearsal begun(config, Registry(), datasets_of(config));
    expect_same_update(run_reports.reports[0], begun.step());
    Rehearsal resumed(config, Registry(), datasets_of(config), {}, *checkpoint);
    EXPECT_EQ(resumed.state().step(), 2);
    const StepReport third = resumed.step();
    EXPECT_GE(third.seconds, third.wait_seconds);
    EXPECT_GT(third.seconds, 0);
    expect_same_update(run_reports.reports[2], third);
    expect_same_update(run_reports.reports[3], resumed.step());
  }
  EXPECT_EQ(files_in(folder.path()), before);
  RunConfig other = config;
  other.data.train.samples = 63;
  const std::string refused = testing::error_of<DataError>(
      [&] { Rehearsal(other, Registry(), datasets_of(other), {}, *checkpoint); });
  TANREN_EXPECT_CONTAINS(refused, "data.train");
}

TEST(RehearsalTest, uses_a_given_rate_in_place_of_schedule_warm_up_and_averaging) {
  RunConfig plain = testing::tiny_config("mlp");
  plain.optimizer.kind = "sgd";
  plain.optimizer.groups = {{{"*.bias"}, 0.5, {}}};
  plain.optimizer.learning_rate = 0.02;
  RunConfig config = plain;
  config.optimizer.learning_rate = 0.3;
  config.schedule.kind = "cosine";
  config.schedule.warmup_steps = 10;
  config.average.kind = "swa";
  config.average.start = "0";
  config.average.learning_rate = 0.7;
  Rehearsal constant(plain, Registry(), datasets_of(plain));
  Rehearsal given(config, Registry(), datasets_of(config));
  given.use_learning_rate(0.02);
  for (int i = 0; i < 3; ++i) expect_same_update(constant.step(), given.step());
  const TensorMap weights = given.state().model_tensors();
  for (const auto& [name, tensor] : constant.state().model_tensors()) {
    EXPECT_TRUE(at::equal(tensor, weights.at(name))) << name;
  }
  given.use_learning_rate(1e-8);
  EXPECT_EQ(given.step().objectives.front().learning_rate, 1e-8);
}

// A model whose loss is not a number from the second batch on.
Registry with_ruined_losses() {
  ModelRegistry models;
  models.add("ruined", [](const ModelOptions& options, const DataInfo& info) {
    Task task = supervised(std::make_shared<torch::nn::LinearImpl>(6, 5), options, info);
    auto& forward = task.phases[0].forward;
    forward = [inner = forward, calls = std::make_shared<int64_t>(0)](const Batch& batch) {
      Terms terms = inner(batch);
      if (!is_dry(batch["inputs"]) && ++*calls > 1) {
        terms[0].sum = terms[0].sum * std::numeric_limits<double>::quiet_NaN();
      }
      return terms;
    };
    return task;
  });
  return Registry(std::move(models), DatasetRegistry());
}

TEST(RehearsalTest, tells_a_verdict_that_halts_a_run_and_leaves_what_follows_to_its_caller) {
  RunConfig config = testing::tiny_config("ruined");
  config.data.train.fields = {"inputs: float[6] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.batch.microbatch = 30;
  Rehearsal run(config, with_ruined_losses(), datasets_of(config));
  EXPECT_EQ(run.step().objectives.front().verdict.action, Action::apply);
  const StepReport halted = run.step();
  EXPECT_EQ(halted.objectives.front().verdict.action, Action::halt);
  EXPECT_EQ(halted.attempt, 2);
  EXPECT_EQ(run.state().step(), 1);
  const std::string line = "[anatomy] the guard stops this run in its first steps: non-finite loss";
  TANREN_EXPECT_CONTAINS(testing::error_of<NonFiniteError>([&] { measured_step(run); }), line);
  TANREN_EXPECT_CONTAINS(
      testing::error_of<RunError>([&] { dissect(config, with_ruined_losses(), false); }), line);
}

}  // namespace
}  // namespace tanren
