#include "tanren/sweep/confirmation.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/testing.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/study.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

// Six trials; the best are c, d and e. Their accuracies are 0.1, 0.2 and so on.
Study six_trials(const std::filesystem::path& journal = {}) {
  const Space space({{.key = "kind", .values = {"a", "f", "e", "d", "c", "b"}}});
  StudyOptions options{.sampler = "grid", .seed = 3, .steps = 8, .journal = journal};
  options.metric = "accuracy";
  options.lower_is_better = false;
  Study study(space, options);
  while (const auto trial = study.ask()) {
    const std::map<std::string, double> values = {{"a", 0.1}, {"b", 0.2}, {"c", 0.6},
                                                  {"d", 0.5}, {"e", 0.4}, {"f", 0.3}};
    study.tell(*trial, values.at(trial->text("kind")));
  }
  return study;
}

bool is_none(const TrialRecord&) { return false; }

std::vector<std::string> names_of(const std::vector<ConfirmingRun>& runs) {
  std::vector<std::string> names;
  for (const ConfirmingRun& run : runs) {
    names.push_back(name_of(run) + (run.alone ? ", alone" : ""));
  }
  return names;
}

using Names = std::vector<std::string>;

// The journal has no number below 0.
TEST(Confirmation, has_seeds_also_after_the_largest) {
  const Space space({{.key = "kind", .values = {"a"}}});
  Study study(space, {.sampler = "grid", .seed = std::numeric_limits<int64_t>::max(), .steps = 8});
  study.tell(*study.ask(), 0.5);
  EXPECT_EQ(
      names_of(runs_to_confirm(study, 2, is_none)),
      (Names{"the file, seed 0", "trial 0000, seed 0", "the file, seed 1", "trial 0000, seed 1"}));
}

TEST(Confirmation, is_of_the_file_and_the_best_three_with_seeds_that_follow) {
  const Study study = six_trials();
  EXPECT_TRUE(runs_to_confirm(study, 0, is_none).empty());
  EXPECT_EQ(names_of(runs_to_confirm(study, 2, is_none)),
            (Names{"the file, seed 4", "trial 0004, seed 4", "trial 0003, seed 4",
                   "trial 0002, seed 4", "the file, seed 5", "trial 0004, seed 5",
                   "trial 0003, seed 5", "trial 0002, seed 5"}));
  // A trial of the file's own values leaves its place to the next one.
  const auto is_best = [](const TrialRecord& record) { return record.id == 4; };
  EXPECT_EQ(names_of(runs_to_confirm(study, 1, is_best)),
            (Names{"the file, seed 4", "trial 0003, seed 4", "trial 0002, seed 4",
                   "trial 0001, seed 4"}));
}

TEST(Confirmation, begins_when_the_search_is_done_and_has_a_value) {
  Study study(Space({{.key = "kind", .values = {"a", "b"}}}), {.sampler = "grid", .steps = 8});
  const auto first = study.ask(), second = study.ask();
  study.tell(*first, 1.0);
  EXPECT_TRUE(runs_to_confirm(study, 2, is_none).empty());
  study.tell(*second, TrialOutcome::crashed);
  EXPECT_EQ(names_of(runs_to_confirm(study, 1, is_none)),
            (Names{"the file, seed 1", "trial 0000, seed 1"}));
  Study none(Space({{.key = "kind", .values = {"a"}}}), {.sampler = "grid", .steps = 8});
  none.tell(*none.ask(), TrialOutcome::crashed);
  EXPECT_TRUE(runs_to_confirm(none, 2, is_none).empty());
}

TEST(Confirmation, runs_once_more_alone_what_was_refused_and_nothing_else_again) {
  Study study = six_trials();
  auto runs = runs_to_confirm(study, 1, is_none);
  study.confirm({.run = runs[0], .outcome = TrialOutcome::refused, .reason = "no room"});
  study.confirm({.run = runs[1], .step = 8, .value = 0.5});
  study.confirm({.run = runs[2], .step = 3, .outcome = TrialOutcome::crashed});
  runs = runs_to_confirm(study, 1, is_none);
  EXPECT_EQ(names_of(runs), (Names{"trial 0002, seed 4", "the file, seed 4, alone"}));
  study.confirm({.run = runs[1], .outcome = TrialOutcome::refused});
  EXPECT_EQ(study.confirmed().back().outcome, TrialOutcome::too_large);
  EXPECT_EQ(names_of(runs_to_confirm(study, 1, is_none)), (Names{"trial 0002, seed 4"}));
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { study.confirm({.run = runs[1], .step = 8, .value = 0.5}); }),
      "[sweep] the file, seed 4 has ended before");
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { study.confirm({.run = {.trial = 6, .seed = 4}}); }),
      "is of a trial that never started");
}

// The study of the worked example below, of which one run of a trial diverged.
void confirm_example(Study& study) {
  const std::map<std::string, double> values = {
      {"the file, seed 4", 0.50},   {"the file, seed 5", 0.40},   {"the file, seed 6", 0.60},
      {"trial 0004, seed 4", 0.61}, {"trial 0004, seed 5", 0.50}, {"trial 0004, seed 6", 0.69},
      {"trial 0003, seed 4", 0.53}, {"trial 0003, seed 5", 0.38}, {"trial 0003, seed 6", 0.62},
      {"trial 0002, seed 4", 0.40}, {"trial 0002, seed 6", 0.40}};
  for (const ConfirmingRun& run : runs_to_confirm(study, 3, is_none)) {
    const auto found = values.find(name_of(run));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    study.confirm({.run = run, .step = 8, .value = found != values.end() ? found->second : nan});
  }
}

TEST(Confirmation, compares_seed_by_seed_and_leaves_out_a_pair_of_which_one_run_failed) {
  Study study = six_trials();
  confirm_example(study);
  const auto all = paired_differences(study);
  ASSERT_EQ(all.size(), 3u);
  // 0.11, 0.10 and 0.09: the values themselves lie further apart.
  EXPECT_EQ(all[0].trial, 4);
  EXPECT_EQ(all[0].pairs, 3);
  EXPECT_NEAR(all[0].mean, 0.1, 1e-12);
  EXPECT_NEAR(*all[0].error, 0.01 / std::sqrt(3.0), 1e-12);
  EXPECT_NEAR(*all[0].p, 0.0033, 5e-5);  // t = 17.32 with 2 degrees of freedom
  EXPECT_FALSE(all[0].is_noise());
  // 0.03, -0.02 and 0.02
  EXPECT_NEAR(all[1].mean, 0.01, 1e-12);
  EXPECT_TRUE(all[1].is_noise());
  // -0.1 and -0.2
  EXPECT_EQ(all[2].trial, 2);
  EXPECT_EQ(all[2].pairs, 2);
  EXPECT_NEAR(all[2].mean, -0.15, 1e-12);
  EXPECT_NEAR(*all[2].error, 0.05, 1e-12);
  EXPECT_NEAR(*all[2].p, 0.2048, 5e-5);  // t = 3 with 1 degree of freedom
}

// Accuracies of a hundred samples: 0.92 - 0.91 and 0.82 - 0.81 differ by rounding alone.
TEST(Confirmation, equal_differences_are_no_proof) {
  Study study = six_trials();
  const std::map<std::string, double> values = {
      {"the file, seed 4", 0.91},   {"the file, seed 5", 0.81},   {"trial 0004, seed 4", 0.92},
      {"trial 0004, seed 5", 0.82}, {"trial 0003, seed 4", 0.91}, {"trial 0003, seed 5", 0.81},
      {"trial 0002, seed 4", 0.92}, {"trial 0002, seed 5", 0.83}};
  for (const ConfirmingRun& run : runs_to_confirm(study, 2, is_none)) {
    study.confirm({.run = run, .step = 8, .value = values.at(name_of(run))});
  }
  const auto all = paired_differences(study);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all[0].mean, 0.01, 1e-12);
  EXPECT_EQ(all[0].error, 0.0);
  EXPECT_FALSE(all[0].p);
  EXPECT_TRUE(all[0].is_noise());
  EXPECT_EQ(all[1].mean, 0);
  EXPECT_EQ(all[1].p, 1.0);
  EXPECT_NEAR(*all[2].p, 0.2048, 5e-5);  // t = 3 with 1 degree of freedom
  const auto json = parse_json(leaderboard_json(study))["confirmation"]["trials"];
  EXPECT_TRUE(json[0]["verdict"].is_null());
  EXPECT_EQ(json[1]["verdict"], "within_noise");
}

// The journal of a population on Ray. Trial 2 has its values only from step 4 on.
TEST(Confirmation, is_not_of_a_population) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "journal.jsonl";
  const Space space({{.key = "kind", .values = {"a", "b", "c"}}});
  StudyOptions options{.sampler = "random", .scheduler = "external", .trials = 2, .steps = 8};
  options.journal = file;
  EXPECT_FALSE(Study(space, options).ask());
  {
    Journal journal(file);
    for (const char* line :
         {R"({"start":0,"values":{"kind":"a"},"until":8})",
          R"({"start":1,"values":{"kind":"b"},"until":8})", R"({"report":0,"step":4,"value":1.0})",
          R"({"start":2,"values":{"kind":"c"},"until":8,"fork_of":0,"replaces":1})",
          R"({"end":0,"step":8,"value":0.5})", R"({"end":2,"step":8,"value":0.4})"}) {
      journal.append(line, false);
    }
  }
  const Study study(space, options);
  ASSERT_TRUE(study.is_done());
  EXPECT_TRUE(is_population(study));
  EXPECT_FALSE(is_population(six_trials()));
  EXPECT_TRUE(runs_to_confirm(study, 3, is_none).empty());
}

// The two-sided 5 % points from tables of Student's distribution.
TEST(Confirmation, three_seeds_need_more_than_two_errors) {
  const std::pair<int64_t, double> points[] = {{1, 12.7062},  {2, 4.30265}, {3, 3.18245},
                                               {4, 2.77645},  {5, 2.57058}, {9, 2.26216},
                                               {10, 2.22814}, {29, 2.04523}};
  for (const auto& [degrees, t] : points) {
    EXPECT_NEAR(two_sided_p(t, degrees), 0.05, 2e-6) << degrees;
    EXPECT_EQ(two_sided_p(-t, degrees), two_sided_p(t, degrees));
    EXPECT_NEAR(two_sided_p(0, degrees), 1, 1e-12);
  }
  const auto noise = [](double mean) {
    return PairedDifference{.pairs = 3, .mean = mean, .error = 1, .p = two_sided_p(mean, 2)}
        .is_noise();
  };
  EXPECT_TRUE(noise(4.2));
  EXPECT_FALSE(noise(4.4));
}

TEST(Confirmation, the_line_says_mean_error_and_what_it_means_for_the_metric) {
  const PairedDifference up{.trial = 7, .pairs = 3, .mean = 0.0102, .error = 0.0021, .p = 0.0384};
  EXPECT_EQ(text_of(up, "accuracy", /*lower_is_better=*/false),
            "+0.0102 ± 0.0021 accuracy over the file, better (3 seeds, p = 0.038)");
  EXPECT_EQ(text_of(up, "loss", /*lower_is_better=*/true),
            "+0.0102 ± 0.0021 loss over the file, worse (3 seeds, p = 0.038)");
  const PairedDifference down{.trial = 7, .pairs = 4, .mean = -12.3, .error = 4.2, .p = 0.06};
  EXPECT_EQ(text_of(down, "loss", true),
            "-12.3 ± 4.2 loss over the file, within noise (4 seeds, p = 0.06)");
  EXPECT_EQ(text_of({.trial = 7, .pairs = 2, .mean = -0.25, .error = 0}, "loss", true),
            "-0.25 ± 0 loss over the file (2 seeds, equal differences, which have no measure of "
            "noise)");
  EXPECT_EQ(text_of({.trial = 7, .pairs = 1, .mean = -0.25}, "loss", true),
            "-0.25 loss over the file (1 seed, which has no measure of noise)");
  EXPECT_EQ(text_of({.trial = 7}, "loss", true), "no pair of runs came to a value");
}

TEST(Confirmation, is_in_the_leaderboard) {
  Study study = six_trials();
  EXPECT_FALSE(parse_json(leaderboard_json(study)).contains("confirmation"));
  EXPECT_EQ(leaderboard_text(study).find("SEEDS"), std::string::npos);
  confirm_example(study);
  const std::string text = leaderboard_text(study);
  TANREN_EXPECT_CONTAINS(text,
                         "\nTHE BEST WITH OTHER SEEDS\n  trial 0004: +0.1000 ± 0.0058 accuracy "
                         "over the file, better (3 seeds, p = 0.0033)\n");
  TANREN_EXPECT_CONTAINS(text, "trial 0003: +0.010 ± 0.015 accuracy over the file, within noise");
  TANREN_EXPECT_CONTAINS(
      text, "  trial 0002, seed 5: diverged (the value is nan); its pairs are left out\n");
  const auto json = parse_json(leaderboard_json(study))["confirmation"];
  ASSERT_EQ(json["trials"].size(), 3u);
  EXPECT_EQ(json["trials"][0]["trial"], 4);
  EXPECT_EQ(json["trials"][0]["verdict"], "better");
  EXPECT_EQ(json["trials"][1]["verdict"], "within_noise");
  ASSERT_EQ(json["runs"].size(), 12u);
  EXPECT_TRUE(json["runs"][0]["trial"].is_null());
  EXPECT_EQ(json["runs"][0]["seed"], 4);
  EXPECT_EQ(json["runs"][0]["value"], 0.5);
  EXPECT_EQ(json["runs"][7]["state"], "diverged");
}

TEST(Confirmation, is_kept_in_the_journal) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "journal.jsonl";
  std::string board;
  {
    Study study = six_trials(file);
    confirm_example(study);
    board = leaderboard_json(study);
  }
  const std::string lines = read_file(file);
  TANREN_EXPECT_CONTAINS(lines, "\n{\"confirm\":4,\"step\":8,\"value\":0.5,");
  TANREN_EXPECT_CONTAINS(lines, "\n{\"confirm\":4,\"of\":4,\"step\":8,\"value\":0.61,");
  TANREN_EXPECT_CONTAINS(lines, "\n{\"confirm\":5,\"of\":2,\"step\":8,\"outcome\":\"diverged\",");
  const Study again = six_trials(file);
  EXPECT_EQ(leaderboard_json(again), board);
  EXPECT_TRUE(runs_to_confirm(again, 3, is_none).empty());
  EXPECT_EQ(runs_to_confirm(again, 4, is_none).size(), 4u);
}

}  // namespace
}  // namespace tanren
