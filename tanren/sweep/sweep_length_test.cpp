#include "tanren/sweep/sweep_length.h"

#include "tanren/base/testing.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

RunConfig searching(DimensionOptions dimension) {
  RunConfig config;
  config.run.steps = 900;
  config.evaluate.every = 50;
  config.sweep.trials = 64;
  config.sweep.sampler = "random";
  config.sweep.space.push_back(std::move(dimension));
  return config;
}

const DimensionOptions kRateRange = {.key = "optimizer.learning_rate", .low = 1e-4, .high = 0.1};

TEST(SweepLength, the_line_has_trials_those_at_a_time_and_the_most_steps) {
  RunConfig config = searching(kRateRange);
  EXPECT_EQ(sweep_line(config, 900).value, "64 trials, 1 at a time");
  EXPECT_EQ(sweep_line(config, 900).reason, "by random; at most 57,600 steps");
  config.sweep.scheduler = "asha";
  config.sweep.devices = {"cuda:0", "cuda:1"};
  config.sweep.confirm = 3;
  EXPECT_EQ(sweep_line(config, 900).value, "64 trials, 2 at a time");
  EXPECT_EQ(sweep_line(config, 900).reason,
            "by random and asha (rungs at 50, 200, 800, 900 steps); at most 57,600 steps, then 12 "
            "runs of 900 steps to confirm");
  config.sweep.trials = 2;
  config.sweep.concurrent = 5;
  EXPECT_EQ(sweep_line(config, 900).value, "2 trials, 5 at a time");
  TANREN_EXPECT_CONTAINS(sweep_line(config, 900).reason, "then 9 runs");
}

TEST(SweepLength, of_a_grid_counts_its_points) {
  RunConfig config = searching({.key = "optimizer.kind", .values = {"sgd", "adamw", "lion"}});
  config.sweep.sampler = "grid";
  config.sweep.trials = 0;
  EXPECT_EQ(sweep_line(config, 10).value, "3 trials, 1 at a time");
  config.sweep.trials = 2;
  EXPECT_EQ(sweep_line(config, 10).value, "2 trials, 1 at a time");
  config.sweep.trials = 64;
  EXPECT_EQ(sweep_line(config, 10).value, "3 trials, 1 at a time");
}

TEST(SweepLength, where_steps_are_searched_takes_the_most) {
  RunConfig config = searching({.key = "run.steps", .values = {"100", "2000"}});
  EXPECT_EQ(steps_of(config), 0);
  EXPECT_EQ(sweep_line(config, 900).reason, "by random; at most 128,000 steps");
  config = searching({.key = "run.steps", .low = 10, .high = 500});
  EXPECT_EQ(sweep_line(config, 900).reason, "by random; at most 57,600 steps");  // the file's own
}

TEST(SweepLength, of_epochs_is_that_of_the_plan_unless_trials_differ) {
  RunConfig config = searching(kRateRange);
  config.run.steps.reset();
  config.run.epochs = 2;
  EXPECT_TRUE(needs_planned_steps(config));
  EXPECT_EQ(sweep_line(config, 10).reason, "by random; at most 640 steps");
  config.sweep.space.push_back({.key = "batch.global_batch", .values = {"16", "32"}});
  EXPECT_FALSE(needs_planned_steps(config));
  EXPECT_EQ(sweep_line(config, 10).reason,
            "by random; how many steps depends on the values of each trial");
}

}  // namespace
}  // namespace tanren
