// Keep best, early stop and the exported weights, in whole runs.
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/formats/safetensors.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

RunConfig ranking_config() {
  auto config = tiny_config("mlp");
  config.run.steps = 12;
  config.data.eval = config.data.train;
  config.evaluate.every = 1;
  config.optimizer.learning_rate = 0.5;  // makes the loss go up and down
  config.checkpoint.best = 2;
  config.checkpoint.keep = 1;
  return config;
}

// Records the evaluations.
struct Evaluations final : Sink {
  std::vector<EvaluationReport> reports;
  void step(const StepReport&) override {}
  void evaluation(const EvaluationReport& report) override { reports.push_back(report); }
  // The steps in the order of their loss, best first.
  std::vector<int64_t> ranking() const {
    std::multimap<double, int64_t> sorted;
    for (const auto& report : reports) sorted.emplace(report.values.front().second, report.step);
    std::vector<int64_t> steps;
    for (const auto& [loss, step] : sorted) steps.push_back(step);
    return steps;
  }
};

class Best : public ::testing::Test {
 protected:
  RunOutput go(const RunConfig& config, Sink* sink = nullptr) {
    RunInput input;
    input.config = config;
    input.folder = folder_.path() / "run";
    if (sink != nullptr) input.sinks = {sink};
    return run(input, ModelRegistry());
  }
  std::set<std::string> checkpoints() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(place() / "checkpoints")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  fs::path place() const { return folder_.path() / "run"; }
  static std::string step(int64_t number) { return "step-" + std::to_string(number); }

  TemporaryFolder folder_;
};

TEST_F(Best, n_checkpoints_and_the_newest_stay_and_the_link_leads_to_the_first) {
  Evaluations seen;
  const auto output = go(ranking_config(), &seen);
  const auto ranking = seen.ranking();
  ASSERT_EQ(ranking.size(), 12u);
  std::set<std::string> expected = {"best", step(12), step(ranking[0]), step(ranking[1])};
  EXPECT_EQ(checkpoints(), expected);
  EXPECT_EQ(best_checkpoint(place() / "checkpoints")->filename(), step(ranking[0]));
  EXPECT_EQ(output.summary.best_step, ranking[0]);
  ASSERT_TRUE(output.exported);
  EXPECT_EQ(output.exported->step, ranking[0]);
  const auto best = read_checkpoint(place() / "checkpoints" / step(ranking[0]));
  const auto exported = read_safetensors(place() / "model.safetensors");
  EXPECT_EQ(exported.metadata.at("step"), std::to_string(ranking[0]));
  for (const auto& [name, tensor] : best.model.tensors) {
    EXPECT_TRUE(at::equal(exported.tensors.at(name), tensor)) << name;
  }
}

TEST_F(Best, is_what_an_evaluation_of_it_measures_again) {
  auto config = ranking_config();
  config.average.kind = "ema";
  config.average.decay = 0.9;
  const auto output = go(config);
  for (const char* which : {"best", "exported"}) {
    config.evaluate.checkpoint = which;
    const auto report =
        evaluate_checkpoint(config, chosen_checkpoint(config, place()), ModelRegistry(), nullptr)
            .report;
    EXPECT_TRUE(report.averaged) << which;
    EXPECT_EQ(report.step, output.summary.best_step) << which;
    EXPECT_EQ(report.values.front().second, output.summary.best_value) << which;
  }
  config.evaluate.checkpoint = "best";
  config.average.evaluate = false;
  const auto raw =
      evaluate_checkpoint(config, chosen_checkpoint(config, place()), ModelRegistry(), nullptr)
          .report;
  EXPECT_FALSE(raw.averaged);
  EXPECT_NE(raw.values.front().second, output.summary.best_value);
}

TEST_F(Best, refuses_a_checkpoint_that_is_not_there_and_takes_the_export_where_none_is_left) {
  auto config = ranking_config();
  config.checkpoint.best = 0;
  go(config);
  for (const char* which : {"best", "step-3"}) {
    config.evaluate.checkpoint = which;
    EXPECT_THROW(chosen_checkpoint(config, place()), CheckpointError) << which;
  }
  config.evaluate.checkpoint = "latest";
  EXPECT_EQ(chosen_checkpoint(config, place()).filename(), "step-12");
  const auto before =
      evaluate_checkpoint(config, chosen_checkpoint(config, place()), ModelRegistry(), nullptr)
          .report;
  fs::remove_all(place() / "checkpoints");
  EXPECT_EQ(chosen_checkpoint(config, place()).filename(), "model.safetensors");
  const auto after =
      evaluate_checkpoint(config, chosen_checkpoint(config, place()), ModelRegistry(), nullptr)
          .report;
  EXPECT_EQ(after.values, before.values);
  EXPECT_EQ(after.step, 12);
  fs::remove(place() / "model.safetensors");
  EXPECT_THROW(chosen_checkpoint(config, place()), CheckpointError);
}

TEST_F(Best, early_stop_finishes_the_run_and_says_why_everywhere) {
  auto config = ranking_config();
  config.run.steps = 200;
  config.early_stop.patience = 2;
  Evaluations seen;
  const auto output = go(config, &seen);
  EXPECT_EQ(output.loop.ending, Ending::finished);
  EXPECT_LT(output.summary.steps, 200);
  EXPECT_EQ(output.summary.status, "finished");
  EXPECT_NE(output.summary.reason.find("in 2 evaluations (early_stop)"), std::string::npos);
  EXPECT_EQ(seen.reports.back().ends_run, output.summary.reason);
  EXPECT_NE(read_file(place() / "summary.json").find(output.summary.reason), std::string::npos);
  EXPECT_NE(read_file(place() / "log.jsonl").find("\"ends_run\":\"loss has"), std::string::npos);
  // Early stop finished the run, so more steps do not reopen it, but more patience does.
  config.run.steps = 300;
  const auto error = error_of<ConfigError>([&] { go(config); });
  EXPECT_NE(error.find("is finished (loss has not improved"), std::string::npos) << error;
  EXPECT_NE(error.find("raise early_stop.patience"), std::string::npos) << error;
  config.early_stop.patience = 4;
  const auto reopened = go(config);
  EXPECT_GT(reopened.summary.steps, output.summary.steps);
}

TEST_F(Best, evaluation_data_that_do_not_fit_the_model_are_refused_before_anything_starts) {
  auto config = ranking_config();
  config.data.eval.fields = {"inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 7]"};
  const auto classes = error_of<ConfigError>([&] { go(config); });
  EXPECT_NE(classes.find("data.eval has 8 classes, data.train has 5"), std::string::npos)
      << classes;
  config.data.eval.fields = {"inputs: float[1,8,9] in [-1, 1]", "labels: int[] in [0, 4]"};
  const auto shape = error_of<ConfigError>([&] { go(config); });
  EXPECT_NE(shape.find("inputs of data.eval are [1, 8, 9]"), std::string::npos) << shape;
  config.data.eval.fields = {"inputs: float[1,8,8] in [-1, 1]", "labels: float[] in [0, 4]"};
  const auto kind = error_of<ConfigError>([&] { go(config); });
  EXPECT_NE(kind.find("labels of data.eval are values"), std::string::npos) << kind;
  EXPECT_FALSE(fs::exists(place()));
  config.data.eval.fields = {"inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 7]"};
  config.model.outputs = 8;
  config.run.steps = 1;
  EXPECT_EQ(go(config).summary.status, "finished");
}

}  // namespace
}  // namespace tanren::testing
