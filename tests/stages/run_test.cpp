// Whole runs in stages. The log is that of a run without stages with the same replicas and samples,
// also for evaluations and what follows them. A run can resume in other stages. Some runs are
// refused.
#include "tests/support/loop_run.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/prepare.h"
#include "tanren/train/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace tanren::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunConfig in_stages(RunConfig config, int64_t stages, int64_t replicas = 1) {
  config.parallel.ranks = "threads";
  config.parallel.pipeline = stages;
  config.parallel.replicas = replicas;
  return config;
}

// Six updates of a model, with an evaluation after the fourth.
RunConfig short_config(const std::string& kind) {
  RunConfig config = looped_config(1);
  config.run.steps = 6;
  config.model = tiny_config(kind).model;
  config.evaluate.metrics = {"accuracy"};
  return config;
}

struct FailsAtEvaluation : Sink {
  void step(const StepReport&) override {}
  void evaluation(const EvaluationReport&) override { throw std::runtime_error("no evaluation"); }
};

class StagedRuns : public Loop {
 protected:
  // "value: reason"
  std::string line(const std::string& key) const {
    for (const PlanLine& line : plan_.lines) {
      if (line.key == key) return line.value + ": " + line.reason;
    }
    return "no line";
  }
  std::string refusal(const RunConfig& config) {
    try {
      go(config, "refused");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(StagedRuns, write_the_log_of_one_rank) {
  const auto one = go(looped_config(1), "1");
  for (const int64_t stages : {2, 3}) {
    const std::string folder = std::to_string(stages);
    const auto output = go(in_stages(looped_config(1), stages), folder);
    EXPECT_EQ(output.loop.ending, Ending::finished);
    EXPECT_EQ(plan_.parallel.world_size, stages);
    EXPECT_EQ(std::ssize(plan_.parallel.cut_at), stages - 1);
    ASSERT_EQ(std::ssize(ranks_), stages);
    EXPECT_THAT(ranks_[1], HasSubstr("rank 1 of " + folder + ": stage 2 of " + folder + ", cpu"));
    expect_same("1", folder);
    ASSERT_EQ(output.summary.evaluate.size(), one.summary.evaluate.size());
    EXPECT_THAT(line("predicted_peak"), HasSubstr("by a dry run of each stage"));
    EXPECT_TRUE(output.summary.predicted_peak_bytes);
  }
}

TEST_F(StagedRuns, of_two_replicas_write_the_log_of_one_rank_by_either_schedule) {
  go(looped_config(1), "1");
  for (const std::string schedule : {"1f1b", "gpipe"}) {
    RunConfig config = in_stages(looped_config(1), 2, 2);
    config.parallel.pipeline_schedule = schedule;
    go(config, schedule);
    EXPECT_EQ(plan_.parallel.world_size, 4);
    EXPECT_EQ(plan_.batch.world_size, 2);
    expect_same("1", schedule);
  }
}

TEST_F(StagedRuns, begin_with_the_weights_of_a_file_on_every_rank) {
  RunConfig config = short_config("mlp");
  config.run.seed = 8;
  const auto given = go(config, "given");
  ASSERT_TRUE(given.exported);
  config.run.seed = 7;  // which draws other weights
  config.model.init_from = given.exported->file.string();
  go(config, "1");
  go(in_stages(config, 3), "3");
  expect_same("1", "3");
  go(in_stages(config, 2, 2), "2");
  expect_same("1", "2");
}

TEST_F(StagedRuns, of_a_gpt_on_a_text_write_the_log_of_one_rank) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
  folder_.file("text.txt", text);
  RunConfig config = short_config("gpt2");
  config.model.num_layers = 2;
  config.model.num_heads = 2;
  config.model.hidden_size = 16;
  config.model.context_length = 12;
  config.model.dropout = 0.1;
  config.data.train = {};
  config.data.train.kind = "text";
  config.data.train.path = (folder_.path() / "text.txt").string();
  config.data.train.context = 12;
  config.data.eval = config.data.train;
  config.batch.global_batch = "8";
  go(config, "1");
  go(in_stages(config, 3), "3");
  expect_same("1", "3");
}

TEST_F(StagedRuns, with_batch_norm_keep_its_split_and_write_the_log_of_one_rank) {
  RunConfig config = short_config("convnet");
  config.model.norm = "batch";
  go(config, "1");
  go(in_stages(config, 3), "3");
  EXPECT_EQ(plan_.batch.accumulation_steps, 1);
  EXPECT_THAT(line("microbatch"), HasSubstr("it stays whole for batch norm"));
  expect_same("1", "3");
}

TEST_F(StagedRuns, are_cut_where_they_are_asked_to) {
  RunConfig config = in_stages(looped_config(1), 2);
  config.parallel.cut_at = {"head"};
  config.asked.insert("parallel.cut_at");
  go(config, "2");
  EXPECT_EQ(line("cut_at"), "head: the first block of each later stage");
  EXPECT_THAT(line("stage_2"), HasSubstr("head: 1 block, "));
}

TEST_F(StagedRuns, tell_the_share_of_time_that_stages_wait) {
  go(looped_config(1), "1");
  go(in_stages(looped_config(1), 2), "2");
  for (const auto& line : read_log(folder_.path() / "1")) {
    EXPECT_FALSE(line["timing"].contains("bubble")) << line;
  }
  for (const auto& line : read_log(folder_.path() / "2")) {
    if (!line.contains("attempt")) continue;
    ASSERT_TRUE(line["timing"].contains("bubble")) << line;
    EXPECT_GT(line["timing"]["bubble"].get<double>(), 0) << line;
    EXPECT_LT(line["timing"]["bubble"].get<double>(), 1) << line;
  }
}

TEST_F(StagedRuns, go_on_in_other_stages_and_without) {
  go(looped_config(1), "1");
  RunConfig first = in_stages(looped_config(1), 3);
  first.run.stop_after = 3;
  go(first, "cut");
  RunConfig second = in_stages(looped_config(1), 2, 2);
  second.run.stop_after = 3;
  go(second, "cut");
  go(looped_config(1), "cut");
  expect_same("1", "cut");
}

TEST_F(StagedRuns, go_on_in_other_stages_once_a_cut_that_was_asked_for_is_dropped) {
  RunConfig config = in_stages(looped_config(1), 2);
  config.parallel.cut_at = {"head"};
  config.run.stop_after = 3;
  go(config, "2");
  config.parallel.pipeline = 3;
  EXPECT_THAT([&] { go(config, "2"); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("(--set 'parallel.cut_at=[]')")));
  config.parallel.cut_at = {};
  go(config, "2");
}

// Stages of one microbatch work one after the other.
TEST(StagesWait, by_what_is_left_of_the_longest_window) {
  EXPECT_DOUBLE_EQ(waiting_share({6, 5, 4}, 6), 1 - 6.0 / 18);
  EXPECT_DOUBLE_EQ(waiting_share({6, 0, 4, 0}, 10), 1 - 10.0 / 12) << "two ranks without samples";
  EXPECT_EQ(waiting_share({0, 0}, 0), 0);
}

TEST_F(StagedRuns, save_before_an_evaluation_which_may_fail) {
  go(looped_config(1), "1");
  RunConfig config = in_stages(looped_config(1), 2);
  config.checkpoint.every = 0;
  FailsAtEvaluation sink;
  EXPECT_THROW(go(config, "2", nullptr, {&sink}), std::exception);
  EXPECT_TRUE(latest_checkpoint(folder_.path() / "2" / "checkpoints"));
  go(config, "2");
  expect_same("1", "2");
}

TEST_F(StagedRuns, are_refused_with_a_cut_that_the_model_does_not_have) {
  EXPECT_THAT(refusal(in_stages(looped_config(1), 9)),
              HasSubstr("parallel.pipeline is 9, and the model has 3 blocks; set it to 3"));
  RunConfig config = in_stages(looped_config(1), 2);
  config.parallel.cut_at = {"hed"};
  EXPECT_THAT(refusal(config), HasSubstr("no block 'hed'; did you mean 'head'?"));
  config.parallel.cut_at = {"head", "head"};
  EXPECT_THAT(refusal(config), HasSubstr("parallel.cut_at names 'head' twice"));
}

TEST_F(StagedRuns, of_processes_need_as_many_while_plans_do_not) {
  RunConfig config = looped_config(1);
  config.parallel.pipeline = 2;
  EXPECT_THAT(refusal(config),
              HasSubstr("parallel.pipeline is 2, and this is one process; start 2"));
  plan_ = plan_only(config, test_registry());
  EXPECT_THAT(line("ranks"), HasSubstr("2: processes on 1 machine: 2 stages"));
  EXPECT_THAT(line("stage_2"), HasSubstr("of the multiply-adds"));
  EXPECT_THAT(to_text(plan_memory_of(config, test_registry()).memory),
              HasSubstr("predicted peaks of a step (by a dry run of each stage):\n  stage 1 "));
}

TEST_F(StagedRuns, are_evaluated_on_one_rank_with_the_whole_model) {
  RunConfig config = in_stages(looped_config(1), 2);
  const auto output = go(config, "2");
  const auto folder = folder_.path() / "2";
  const auto evaluated =
      evaluate_checkpoint(config, chosen_checkpoint(config, folder), test_registry(), nullptr);
  ASSERT_EQ(evaluated.report.values.size(), output.summary.evaluate.size());
  for (size_t i = 0; i < output.summary.evaluate.size(); ++i) {
    EXPECT_NEAR(evaluated.report.values[i].second, output.summary.evaluate[i].second, 1e-9);
  }
}

TEST(WithoutStages, there_are_the_same_replicas_and_threads_of_a_rank) {
  RunConfig config = in_stages(looped_config(1), 3, 2);
  config.run.threads = 12;
  RunConfig whole = without_stages(config, test_registry());
  EXPECT_EQ(whole.parallel.pipeline, 1);
  EXPECT_EQ(whole.parallel.replicas, 2);
  EXPECT_EQ(whole.run.threads, 4) << "two of each rank";
  config.parallel.replicas = 0;
  config.run.device = "cpu";
  whole = without_stages(config, test_registry());
  EXPECT_EQ(whole.parallel.replicas, 1);
  EXPECT_EQ(whole.run.threads, 4);
  config.parallel.ranks = "processes";
  EXPECT_EQ(without_stages(config, test_registry()).run.threads, 12);
}

}  // namespace
}  // namespace tanren::testing
