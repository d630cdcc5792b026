#include "tanren/base/error.h"
#include "tanren/plan/planner.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

struct Asked {
  RunConfig config;
  Machine machine;
  ModelProfile profile;

  Asked() {
    config.run.steps = 100;
    config.model.kind = "mlp";
    config.data.eval.kind = "csv";
    profile.metrics = {"accuracy", "top*"};
    profile.train_samples = 100;
    profile.eval_samples = 10;
  }
  Plan plan() const { return make_plan(config, machine, profile); }
  std::string line(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key == key) return line.value + " | " + line.reason;
    }
    return "";
  }
};

TEST(EvaluationPass, resolves_and_prints_the_batch) {
  Asked given;
  given.config.batch.microbatch = 7;
  EXPECT_EQ(given.plan().evaluate.batch, 7);
  EXPECT_EQ(given.line("evaluate.batch"),
            "7 | as training's microbatch; it cannot change a result");
  given.config.batch.microbatch = 0;
  EXPECT_EQ(given.plan().evaluate.batch, 32);
  given.config.evaluate.batch = 500;
  EXPECT_EQ(given.plan().evaluate.batch, 500);
  given.config.data.eval.kind = "";
  EXPECT_EQ(given.line("evaluate.batch"), "");
}

TEST(EvaluationPass, is_planned_for_the_part_that_a_split_gives) {
  Asked given;
  EXPECT_EQ(given.line("data.split"), "");
  given.config.data.eval.kind = "";
  given.config.data.split = 0.1;
  given.profile.split = "evaluation gets 10 of 110 rows (9.1 %, by hash)";
  EXPECT_EQ(given.line("data.split"), "0.1 | evaluation gets 10 of 110 rows (9.1 %, by hash)");
  EXPECT_EQ(given.line("evaluate"), "at the end | 10 samples, each once");
}

TEST(EvaluationPass, says_how_keep_best_and_early_stop_judge) {
  Asked given;
  EXPECT_EQ(given.line("checkpoint.best") + given.line("early_stop"), "");
  given.config.checkpoint.best = 2;
  given.config.checkpoint.metric = "accuracy";
  given.config.early_stop.patience = 3;
  EXPECT_NE(given.line("checkpoint.best").find("accuracy, higher is better"), std::string::npos);
  EXPECT_NE(given.line("early_stop").find("loss, lower is better"), std::string::npos);
  EXPECT_FALSE(given.plan().best.lower_is_better);
  given.config.checkpoint.mode = "min";
  EXPECT_TRUE(given.plan().best.lower_is_better);
}

TEST(EvaluationPass, refuses_to_steer_by_a_default_metric_that_does_not_fit_the_task) {
  Asked given;
  given.profile.metrics = {"mse"};
  EXPECT_EQ(given.plan().evaluate.metrics, std::vector<std::string>());
  given.config.asked.insert("evaluate.metrics");  // as a run's own config.toml has it
  EXPECT_EQ(given.plan().evaluate.metrics, std::vector<std::string>());
  given.config.early_stop.metric = "accuracy";
  EXPECT_NO_THROW(given.plan());
  given.config.early_stop.patience = 2;
  EXPECT_THROW(given.plan(), ConfigError);
  given.config.evaluate.metrics = {"mse"};
  given.config.early_stop.metric = "mse";
  EXPECT_TRUE(given.plan().early_stop_by.lower_is_better);
}

TEST(AveragePass, refuses_a_start_that_is_no_number_and_estimates_without_batch_norm) {
  Asked given;
  given.config.average.kind = "ema";
  given.config.average.start = "soon";
  EXPECT_THROW(given.plan(), ConfigError);
  given.config.average.start = "auto";
  given.config.average.buffers = "estimate";
  EXPECT_THROW(given.plan(), ConfigError);
}

TEST(AveragePass, resolves_start_and_buffers) {
  Asked given;
  EXPECT_EQ(given.plan().average.kind, Averaging::none);
  EXPECT_EQ(given.line("average"), "");
  given.config.average.kind = "ema";
  EXPECT_EQ(given.plan().average.start, 0);
  given.config.average.kind = "swa";
  EXPECT_EQ(given.plan().average.start, 75);
  given.config.average.start = "0.5";
  EXPECT_EQ(given.plan().average.start, 50);
  given.config.average.start = "20";
  EXPECT_EQ(given.plan().average.start, 20);
  EXPECT_NE(given.line("average").find("from step 20 on"), std::string::npos);
  EXPECT_EQ(given.plan().average.buffers, AverageBuffers::average);
  given.profile.couples_samples = true;
  EXPECT_EQ(given.plan().average.buffers, AverageBuffers::estimate);
  EXPECT_NE(given.line("average.buffers").find("all of the training data"), std::string::npos);
  given.config.model.kind = "torchscript";  // whose batch norms nobody reaches
  EXPECT_EQ(given.plan().average.buffers, AverageBuffers::average);
  given.config.average.kind = "ema";
  EXPECT_EQ(given.plan().average.buffers, AverageBuffers::average);
}

TEST(EvaluationPass, refuses_pictures_of_a_task_whose_outputs_are_none) {
  Asked given;
  given.config.metrics.images_every = 200;
  try {
    given.plan();
    FAIL() << "pictures of classes";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.images_every is 200"), std::string::npos);
  }
  given.profile.metrics = {"mse", "psnr", "ssim"};
  EXPECT_EQ(given.plan().metrics.images_every, 200);
  given.config.metrics.images_every = 0;
  given.profile.metrics = {"accuracy"};
  EXPECT_EQ(given.plan().metrics.images_every, 0);
}

}  // namespace
}  // namespace tanren
