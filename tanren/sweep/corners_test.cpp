#include "tanren/sweep/corners.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/testing.h"
#include "tanren/config/read_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tanren {
namespace {

const KnownKinds kKnown{"mlp"};

class Corner : public ::testing::Test {
 protected:
  // The config of a sweep over the given tables.
  void write(const std::string& space) {
    file_ = folder_.file("digits.toml",
                         "[run]\nsteps = 100\nseed = 7\n[model]\nkind = \"mlp\"\n"
                         "[data.train]\nkind = \"csv\"\npath = \"a.csv\"\n"
                         "[data.eval]\nkind = \"csv\"\npath = \"b.csv\"\n"
                         "[evaluate]\nevery = 10\n"
                         "[sweep]\ntrials = 8\nmetric = \"accuracy\"\nscheduler = \"asha\"\n" +
                             space);
  }
  RunConfig config() const { return read_config(file_, {}, kKnown); }
  std::vector<std::string> problems() const {
    return corner_problems(config_source(file_, {}, kKnown), space_of(config()), kKnown);
  }

  testing::TemporaryFolder folder_;
  std::string file_;
};

constexpr const char* kOptimizers =
    "[[sweep.space]]\nkey = \"optimizer.kind\"\nvalues = [\"adamw\", \"sgd\"]\n"
    "[[sweep.space]]\nkey = \"optimizer.momentum\"\nlow = 0.5\nhigh = 0.99\n"
    "when = \"optimizer.kind=sgd\"\n"
    "[[sweep.space]]\nkey = \"model.hidden\"\nvalues = [\"[32]\", \"[64, 64]\"]\n"
    "[[sweep.space]]\nkey = \"batch.global_batch\"\nlow = 8\nhigh = 64\nscale = \"log\"\n";

TEST_F(Corner, a_valid_space_has_no_problem_and_its_trials_are_runs_without_a_sweep) {
  write(kOptimizers);
  EXPECT_EQ(join(problems(), "\n"), "");
  const RunConfig trial = trial_config(
      config_source(file_, {"run.steps=50"}, kKnown),
      {{"optimizer.kind", "sgd"}, {"optimizer.momentum", "0.75"}, {"model.hidden", "[64, 64]"}},
      kKnown);
  EXPECT_EQ(trial.optimizer.momentum, 0.75);
  EXPECT_EQ(trial.model.hidden, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(trial.run.steps, 50);
  EXPECT_TRUE(trial.sweep.space.empty());
  EXPECT_EQ(trial.asked.count("sweep.space"), 0u);
}

TEST_F(Corner, a_trial_of_the_values_that_the_file_has_is_the_file) {
  write(kOptimizers);
  const ConfigSource source = config_source(file_, {"optimizer.kind=sgd"}, kKnown);
  const auto is_file = [&](const TrialValues& values) {
    return is_as_written(source, values, kKnown);
  };
  EXPECT_TRUE(is_file({{"optimizer.kind", "sgd"}}));
  EXPECT_FALSE(is_file({{"optimizer.kind", "adamw"}}));
  EXPECT_FALSE(is_file({{"optimizer.kind", "sgd"}, {"model.hidden", "[7]"}}));
}

TEST_F(Corner, a_key_that_takes_whole_numbers_has_whole_numbers_only) {
  write(kOptimizers);
  const Space space = space_of(config());
  EXPECT_TRUE(space.dimensions()[3].whole);
  EXPECT_FALSE(space.dimensions()[1].whole);
  const double batch = space.value_at(3, 0.4);
  EXPECT_EQ(batch, std::floor(batch));
}

TEST_F(Corner, a_study_has_what_the_config_asks) {
  write(kOptimizers);
  const StudyOptions options = study_options_of(config(), 100);
  EXPECT_EQ(options.trials, 8);
  EXPECT_EQ(options.metric, "accuracy");
  EXPECT_FALSE(options.lower_is_better);  // mode auto, of an accuracy
  EXPECT_EQ(options.sampler, "tpe");
  EXPECT_EQ(options.scheduler, "asha");
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.steps, 100);
  EXPECT_EQ(options.first_rung, 10);  // evaluate.every
  EXPECT_EQ(options.reduction, 4);
  EXPECT_EQ(options.interval, 0);
  RunConfig least = config();
  least.sweep.mode = "min";
  least.sweep.first_rung = 20;
  EXPECT_TRUE(study_options_of(least, 100).lower_is_better);
  EXPECT_EQ(study_options_of(least, 100).first_rung, 20);
}

TEST_F(Corner, every_problem_of_every_corner_is_told_once_with_its_values) {
  write(
      "[[sweep.space]]\nkey = \"optimizer.kind\"\nvalues = [\"sgd\", \"adamv\"]\n"
      "[[sweep.space]]\nkey = \"optimizer.momentum\"\nlow = 0.5\nhigh = 1.5\n"
      "when = \"optimizer.kind=sgd\"\n"
      "[[sweep.space]]\nkey = \"model.hidden\"\nvalues = [\"[32]\", \"many\"]\n");
  const auto found = problems();
  const std::string all = join(found, "\n");
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), found.size());
  for (const char* line :
       {"[sweep] optimizer.kind=sgd optimizer.momentum=1.5 model.hidden=[32]: optimizer.momentum "
        "is 1.5; it must lie in [0, 1)",
        "[sweep] optimizer.kind=adamv model.hidden=[32]: optimizer.kind \"adamv\" is unknown; "}) {
    TANREN_EXPECT_CONTAINS(all, line);
  }
  TANREN_EXPECT_CONTAINS(all, "(nearest: adam)");
  TANREN_EXPECT_CONTAINS(all, "model.hidden must be a list of whole numbers, not 'many'");
}

TEST_F(Corner, a_source_is_read_alike_when_its_file_and_the_working_folder_are_gone) {
  write(kOptimizers);
  const ConfigSource source = config_source(file_, {"data.eval.path=c.csv"}, kKnown);
  std::filesystem::remove(file_);
  const RunConfig config = config_of(source, {"run.steps=200"}, kKnown);
  EXPECT_EQ(config.run.name, "digits");
  EXPECT_EQ(config.run.steps, 200);
  EXPECT_EQ(config.data.train.path, (folder_.path() / "a.csv").string());
  const std::string here = (std::filesystem::current_path() / "c.csv").string();
  EXPECT_EQ(config.data.eval.path, here);
  EXPECT_EQ(source.sets, std::vector<std::string>{"data.eval.path=" + here});
}

TEST(Corners, are_all_combinations_or_each_end_beside_the_first_and_the_last_of_the_others) {
  const Space space({{.key = "a", .values = {"1", "2"}},
                     {.key = "b", .low = 0.0, .high = 1.0, .when = "a=2"},
                     {.key = "c", .values = {"1", "2", "3"}}});
  EXPECT_EQ(corners_of(space).size(), 9u);  // (a=1, or a=2 with either end of b) × c
  std::set<std::string> few;
  for (const SpacePoint& point : corners_of(space, 4)) {
    std::string text;
    for (const auto& [key, value] : space.values_of(point)) text += value + " ";
    EXPECT_TRUE(few.insert(text).second) << text;
  }
  // b has both ends, though the first a does not have b.
  for (const char* point : {"1 1 ", "1 2 ", "1 3 ", "2 0 1 ", "2 1 1 ", "2 0 3 ", "2 1 3 "}) {
    EXPECT_EQ(few.count(point), 1u) << point;
  }
}

}  // namespace
}  // namespace tanren
