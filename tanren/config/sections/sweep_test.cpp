#include "tanren/config/sections/sweep.h"

#include "tanren/config/config_test_util.h"
#include "tanren/config/describe.h"
#include "tanren/config/identity.h"
#include "tanren/config/space_rules.h"
#include "tanren/config/write_config.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::parse;

// A config that evaluates, with a [sweep] of these lines.
std::string sweep_of(const std::string& keys, const std::string& run = "steps = 900") {
  return "[run]\n" + run +
         "\n[model]\nkind = \"mlp\"\n[data.train]\nkind = \"csv\"\npath = \"train.csv\"\n"
         "[data.eval]\nkind = \"csv\"\npath = \"eval.csv\"\n[evaluate]\nevery = 10\n[sweep]\n" +
         keys;
}

std::string dimension(const std::string& lines) { return "\n[[sweep.space]]\n" + lines; }

const std::string kRate =
    dimension("key = \"optimizer.learning_rate\"\nlow = 1e-4\nhigh = 0.1\nscale = \"log\"\n");

TEST(Sweep, is_read_written_and_leaves_the_run_as_it_is) {
  const RunConfig config =
      parse(sweep_of("trials = 64\nscheduler = \"asha\"\nfirst_rung = 50\nreduction = 3\n" + kRate +
                     dimension("key = \"optimizer.kind\"\nvalues = [\"adamw\", \"sgd\"]\n") +
                     dimension("key = \"optimizer.momentum\"\nlow = 0.5\nhigh = 0.99\n"
                               "when = \"optimizer.kind=sgd\"\n") +
                     dimension("key = \"batch.global_batch\"\nvalues = [16, 32]\n")));
  const SweepOptions& o = config.sweep;
  EXPECT_EQ(o.trials, 64);
  EXPECT_EQ(o.first_rung, 50);
  ASSERT_EQ(o.space.size(), 4u);
  EXPECT_EQ(o.space[0],
            (DimensionOptions{
                .key = "optimizer.learning_rate", .low = 1e-4, .high = 0.1, .scale = "log"}));
  EXPECT_EQ(o.space[2].when, "optimizer.kind=sgd");
  EXPECT_EQ(o.space[3].values, (std::vector<std::string>{"16", "32"}));
  const RunConfig back = parse(to_toml(config));
  EXPECT_EQ(back.sweep.space, o.space);
  EXPECT_EQ(back.sweep.reduction, 3);
  RunConfig plain = config;
  plain.sweep = {};
  EXPECT_TRUE(differing_keys(config, plain).empty());
  EXPECT_EQ(values_of_all_ranks(config), values_of_all_ranks(plain));
}

TEST(Sweep, every_problem_of_the_space_is_told_at_once) {
  const std::string error = error_of(sweep_of(
      "trials = 8\n" + dimension("key = \"optimizer.learning_rat\"\nlow = 0.1\nhigh = 0.2\n") +
      dimension("key = \"optimizer.beta1\"\nlow = 0.9\nhigh = 0.8\n") +
      dimension("key = \"optimizer.beta1\"\nvalues = [0.9]\n") +
      dimension("key = \"optimizer.kind\"\nlow = 1\nhigh = 2\n") +
      dimension("key = \"batch.global_batch\"\nlow = 0.5\nhigh = 8\n") +
      dimension("key = \"clip.norm\"\nlow = 0\nhigh = 1\nscale = \"log\"\n") +
      dimension("key = \"clip.value\"\nlow = 1\nhigh = 2\npoints = 3\n") +
      dimension("key = \"schedule.power\"\nvalues = [1]\nwhen = \"schedule.kind=polynomial\"\n") +
      dimension("key = \"run.name\"\nvalues = [\"a\"]\n") +
      dimension("key = \"parallel.zero\"\nvalues = [1]\n") +
      dimension("key = \"evaluate.every\"\nvalues = [1]\n") +
      dimension("key = \"data.eval.scale\"\nvalues = [2]\n") +
      dimension("key = \"data.split\"\nvalues = [0.5]\n")));
  for (const char* problem :
       {"sweep.space optimizer.learning_rat: there is no such key; nearest: "
        "optimizer.learning_rate",
        "sweep.space optimizer.beta1: low 0.9 is not below high 0.8; swap them",
        "sweep.space optimizer.beta1: is there twice; drop one",
        "sweep.space optimizer.kind takes text, which has no range; give values",
        "sweep.space batch.global_batch takes whole numbers; give whole ends",
        "sweep.space clip.norm: scale log needs low above 0, not 0",
        "sweep.space clip.value: points are of sampler grid; drop them",
        "sweep.space schedule.power: when names schedule.kind, which is no dimension",
        "sweep.space run.name: a trial may not have this key",
        "sweep.space parallel.zero: a trial may not have this key",
        "sweep.space evaluate.every: a trial may not have this key",
        "sweep.space data.eval.scale: a trial may not have this key",
        "sweep.space data.split: a trial may not have this key"}) {
    expect_contains(error, problem);
  }
}

TEST(Sweep, the_place_of_a_problem_is_the_line_of_the_space) {
  const auto lines = config_test::lines_of(
      error_of(sweep_of("trials = 8\n" + dimension("key = \"clip.norm\"\nlow = 2\nhigh = 1\n"))));
  ASSERT_EQ(lines.size(), 1u) << lines[0];
  expect_contains(lines[0], "[config] run.toml:");
  expect_contains(lines[0], "sweep.space clip.norm: low 2 is not below high 1");
}

TEST(Sweep, entries_of_tables_and_keys_of_objectives_are_keys) {
  EXPECT_EQ(error_of(sweep_of("trials = 8\n" +
                              dimension("key = \"objectives.main.optimizer.learning_rate\"\n"
                                        "low = 1e-4\nhigh = 0.1\n"))),
            "accepted");
  const std::string misspelt = dimension("key = \"objectives.main.optimizr\"\nvalues = [1]\n");
  expect_contains(error_of(sweep_of("trials = 8\n" + misspelt)), "there is no such key");
}

TEST(Sweep, a_grid_needs_points_and_other_samplers_trials) {
  expect_contains(error_of(sweep_of("sampler = \"grid\"\n" + kRate)),
                  "sweep.space optimizer.learning_rate: a range in a grid needs points");
  expect_contains(error_of(sweep_of("sampler = \"random\"\n" + kRate)),
                  "sweep.trials is 0, which stands for all points of a grid; set it");
  EXPECT_EQ(error_of(sweep_of("sampler = \"grid\"\n" + kRate + "points = 4\n")), "accepted");
}

TEST(Sweep, rungs_and_exchanges_fall_on_evaluations) {
  expect_contains(
      error_of(sweep_of("trials = 8\nscheduler = \"asha\"\nfirst_rung = 25\n" + kRate)),
      "sweep.first_rung is 25 and evaluate.every is 10; trials are judged by evaluations, so take "
      "a multiple");
  expect_contains(error_of(sweep_of("trials = 8\nscheduler = \"pbt\"\ninterval = 15\n" + kRate)),
                  "sweep.interval is 15 and evaluate.every is 10");
  expect_contains(
      error_of(sweep_of("trials = 8\nscheduler = \"asha\"\nfirst_rung = 900\n" + kRate)),
      "sweep.first_rung is 900 and run.steps is 900; no trial would be judged before its end");
  expect_contains(
      error_of(sweep_of("trials = 8\nscheduler = \"asha\"\n" + kRate), {"evaluate.every=0"}),
      "sweep.scheduler needs evaluations while training; set evaluate.every");
  expect_contains(error_of(sweep_of("trials = 8\ninterval = 10\n" + kRate)),
                  "sweep.interval has no meaning for sweep.scheduler \"none\"; drop it");
}

TEST(Sweep, needs_evaluations_and_a_metric_that_they_measure) {
  const std::string none =
      "[run]\nsteps = 9\n[model]\nkind = \"mlp\"\n[data.train]\nkind = \"csv\"\n"
      "path = \"train.csv\"\n[sweep]\ntrials = 8\n" +
      kRate;
  expect_contains(error_of(none),
                  "sweep.space needs evaluations, which rank the trials; add [data.eval]");
  expect_contains(error_of(sweep_of("trials = 8\nmetric = \"acuracy\"\n" + kRate)),
                  "sweep.metric \"acuracy\" is not measured; one of loss, accuracy (nearest: "
                  "accuracy)");
}

TEST(Sweep, the_loss_ranks_no_trials_of_other_losses) {
  for (const char* lines : {"key = \"model.label_smoothing\"\nvalues = [0, 0.1]\n",
                            "key = \"objectives.main.weights.loss\"\nvalues = [1, 2]\n"}) {
    expect_contains(error_of(sweep_of("trials = 8\n" + dimension(lines))),
                    "changes what the loss measures");
    EXPECT_EQ(error_of(sweep_of("trials = 8\nmetric = \"accuracy\"\n" + dimension(lines)))
                  .find("changes what the loss measures"),
              std::string::npos);
  }
}

TEST(Sweep, pbt_takes_keys_alone_that_leave_the_state_as_it_is) {
  const auto error = [](const std::string& lines) {
    return error_of(sweep_of("trials = 8\nscheduler = \"pbt\"\n" + dimension(lines)));
  };
  EXPECT_EQ(error_of(sweep_of("trials = 8\nscheduler = \"pbt\"\n" + kRate)), "accepted");
  EXPECT_EQ(error("key = \"optimizer.weight_decay\"\nlow = 0\nhigh = 0.1\n"), "accepted");
  EXPECT_EQ(error("key = \"model.dropout\"\nlow = 0\nhigh = 0.5\n"), "accepted");
  for (const char* lines : {"key = \"model.hidden\"\nvalues = [\"[8]\", \"[9]\"]\n",
                            "key = \"optimizer.kind\"\nvalues = [\"adamw\", \"sgd\"]\n",
                            "key = \"precision.mode\"\nvalues = [\"fp32\", \"bf16\"]\n"}) {
    expect_contains(error(lines), "pbt goes on from another trial's checkpoint");
  }
  for (const char* ends : {"low = 0\nhigh = 0.9\n", "values = [0, 0.9]\n"}) {
    expect_contains(error(std::string("key = \"optimizer.momentum\"\n") + ends),
                    "with pbt it must be above 0");
  }
  EXPECT_EQ(error("key = \"optimizer.momentum\"\nvalues = [0.5, 0.9]\n").find("with pbt it"),
            std::string::npos);
  expect_contains(
      error_of(sweep_of("trials = 8\nscheduler = \"pbt\"\n" + kRate), {"early_stop.patience=2"}),
      "set early_stop.patience = 0");
  EXPECT_EQ(
      error_of(sweep_of("trials = 8\nscheduler = \"asha\"\n" + kRate), {"early_stop.patience=2"}),
      "accepted");
  expect_contains(error_of(sweep_of("trials = 1\nscheduler = \"pbt\"\n" + kRate)),
                  "sweep.trials is 1; pbt needs 2 or more");
}

TEST(Sweep, schedulers_need_trials_of_the_same_steps) {
  expect_contains(error_of(sweep_of("trials = 8\nscheduler = \"asha\"\n" +
                                    dimension("key = \"run.steps\"\nvalues = [90, 900]\n"))),
                  "sweep.space run.steps changes the steps of a trial");
  const std::string batch = dimension("key = \"batch.global_batch\"\nvalues = [16, 32]\n");
  expect_contains(error_of(sweep_of("trials = 8\nscheduler = \"asha\"\n" + batch, "epochs = 3")),
                  "set run.steps instead of run.epochs");
  EXPECT_EQ(error_of(sweep_of("trials = 8\n" + batch, "epochs = 3")), "accepted");
  const std::string last = dimension("key = \"data.last\"\nvalues = [\"keep\", \"drop\"]\n");
  expect_contains(error_of(sweep_of("trials = 8\nscheduler = \"asha\"\n" + last, "epochs = 3")),
                  "sweep.space data.last changes the steps of a trial");
  EXPECT_EQ(error_of(sweep_of("trials = 8\nscheduler = \"asha\"\n" + last)), "accepted");
}

TEST(Sweep, keys_without_a_space_have_no_meaning) {
  expect_contains(error_of(sweep_of("trials = 8\n")),
                  "sweep.trials has no meaning without [[sweep.space]]; add tables, or drop it");
}

TEST(Sweep, its_processes_have_bounds_and_devices_that_exist) {
  const auto error = [](const std::string& line) {
    return error_of(sweep_of("trials = 8\n" + line + kRate));
  };
  EXPECT_EQ(error("concurrent = 2\ndevices = [\"cpu\"]\ntimeout = 0\nkeep = 1\n"), "accepted");
  expect_contains(error("devices = [\"cpu\", \"gpu\"]\n"), "sweep.devices \"gpu\" is unknown");
  expect_contains(error("concurrent = -1\n"), "sweep.concurrent is -1");
  expect_contains(error("timeout = -1\n"), "sweep.timeout is -1");
  expect_contains(error("keep = 0\n"), "sweep.keep is 0");
}

TEST(Sweep, other_seeds_are_two_or_more_of_whole_runs_of_one_set_of_values) {
  EXPECT_EQ(error_of(sweep_of("trials = 8\nconfirm = 3\nscheduler = \"asha\"\n" + kRate)),
            "accepted");
  expect_contains(error_of(sweep_of("trials = 8\nconfirm = -1\n" + kRate)), "sweep.confirm is -1");
  expect_contains(error_of(sweep_of("trials = 8\nconfirm = 1\n" + kRate)),
                  "sweep.confirm is 1, and noise is seen from 2 seeds on");
  expect_contains(error_of(sweep_of("trials = 8\nconfirm = 3\nscheduler = \"pbt\"\n" + kRate)),
                  "the best of pbt changed its values on the way");
  const std::string seeds = dimension("key = \"run.seed\"\nvalues = [1, 2]\n");
  expect_contains(error_of(sweep_of("trials = 8\nconfirm = 3\n" + seeds)),
                  "sweep.space run.seed: sweep.confirm sets the seed; drop one of them");
  EXPECT_EQ(error_of(sweep_of("trials = 8\n" + seeds)), "accepted");
}

TEST(Sweep, a_condition_is_a_key_and_a_value) {
  using Condition = std::pair<std::string, std::string>;
  EXPECT_EQ(condition_of("a.b=c"), Condition("a.b", "c"));
  EXPECT_EQ(condition_of(" a.b = c=d "), Condition("a.b", "c=d"));
  EXPECT_FALSE(condition_of("a.b"));
  EXPECT_FALSE(condition_of("=c"));
  EXPECT_FALSE(condition_of("a.b="));
}

TEST(Sweep, its_tables_are_in_the_help) {
  expect_contains(help_text("sweep.space.when"), "sweep.space.when (text, default \"\")");
  expect_contains(help_text("sweep"),
                  "sweep.space.values (a list of texts or numbers, default [])");
}

}  // namespace
}  // namespace tanren
