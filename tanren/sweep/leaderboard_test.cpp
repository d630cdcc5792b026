#include "tanren/sweep/leaderboard.h"

#include "tanren/base/json_text.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

namespace tanren {
namespace {

std::vector<int64_t> ids_of(const std::vector<const TrialRecord*>& records) {
  std::vector<int64_t> ids;
  for (const TrialRecord* record : records) ids.push_back(record->id);
  return ids;
}

// Twenty trials by asha, three of which run: a stops on the way, b finishes, c crashes.
Study three_kinds() {
  Study study(Space({{.key = "kind", .values = {"a", "b", "c"}}}), {.sampler = "random",
                                                                    .scheduler = "asha",
                                                                    .trials = 20,
                                                                    .lower_is_better = false,
                                                                    .metric = "accuracy",
                                                                    .steps = 8,
                                                                    .first_rung = 2,
                                                                    .reduction = 2});
  int64_t told = 0;
  while (const auto trial = study.ask()) {
    const std::string& kind = trial->text("kind");
    ++told;
    if (kind == "c") {
      study.tell(*trial, TrialOutcome::crashed, "signal 6", 1);
    } else {
      study.tell(*trial, kind == "b" ? 0.9 : 0.5);
    }
  }
  EXPECT_GE(told, 3);
  return study;
}

const TrialRecord& first_of(const Study& study, const std::string& kind) {
  for (const TrialRecord& record : study.records()) {
    if (!record.same_as && record.values[0].second == kind) return record;
  }
  throw std::runtime_error("no trial of kind " + kind);
}

TEST(Leaderboard, ranks_by_step_then_by_value_and_failures_last) {
  const Study study = three_kinds();
  ASSERT_TRUE(study.is_done());
  const auto order = ids_of(ranked(study));
  ASSERT_EQ(order.size(), 20u);
  const int64_t best = first_of(study, "b").id, crashed = first_of(study, "c").id;
  EXPECT_EQ(order[0], best);
  EXPECT_EQ(study.best()->id, best);
  const auto place = [&](int64_t id) {
    return std::find(order.begin(), order.end(), id) - order.begin();
  };
  EXPECT_LT(place(first_of(study, "a").id), place(crashed));
  for (const TrialRecord& record : study.records()) {
    if (record.same_as) {
      EXPECT_GT(place(record.id), place(*record.same_as));
    }
  }
  EXPECT_EQ(state_text(study, first_of(study, "b")), "finished");
  EXPECT_EQ(state_text(study, first_of(study, "a")), "stopped");
  EXPECT_EQ(state_text(study, first_of(study, "c")), "crashed");
}

TEST(Leaderboard, the_json_has_every_trial_with_its_values_and_its_curve) {
  const Study study = three_kinds();
  const auto json = parse_json(leaderboard_json(study));
  EXPECT_EQ(json["metric"], "accuracy");
  EXPECT_EQ(json["mode"], "max");
  EXPECT_EQ(json["done"], true);
  ASSERT_EQ(json["trials"].size(), 20u);
  const auto& best = json["trials"][0];
  EXPECT_EQ(best["rank"], 1);
  EXPECT_EQ(best["state"], "finished");
  EXPECT_EQ(best["value"], 0.9);
  EXPECT_EQ(best["step"], 8);
  EXPECT_EQ(best["values"]["kind"], "b");
  EXPECT_EQ(best["metrics"].dump(), "[[2,0.9],[4,0.9],[8,0.9]]");
  const auto& last = json["trials"][19];
  EXPECT_TRUE(last["value"].is_null());
  EXPECT_EQ(last["state"], "crashed");
  EXPECT_EQ(last["reason"], "signal 6");
}

TEST(Leaderboard, the_text_shows_the_first_rows_and_counts_all) {
  const Study study = three_kinds();
  const std::string text = leaderboard_text(study, 2);
  TANREN_EXPECT_CONTAINS(text, "TRIALS BY ACCURACY\n");
  TANREN_EXPECT_CONTAINS(text, "finished  kind=b");
  TANREN_EXPECT_CONTAINS(text, "; 18 more rows\n");
  TANREN_EXPECT_CONTAINS(text, " crashed, ");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);  // title, head, two rows, note
}

TEST(Leaderboard, a_trial_that_pauses_is_stopped_only_when_the_study_is_done) {
  Study study(
      Space({{.key = "kind", .values = {"a", "b"}}}),
      {.sampler = "grid", .scheduler = "asha", .steps = 8, .first_rung = 2, .reduction = 2});
  EXPECT_EQ(leaderboard_text(study), "TRIALS BY VALUE\n  no trial yet\n");
  study.tell(*study.ask(), 1.0);
  EXPECT_EQ(state_text(study, study.records()[0]), "paused");
  study.tell(*study.ask(), 0.5);
  const auto promoted = study.ask();
  EXPECT_EQ(state_text(study, study.records()[1]), "running");
  study.tell(*promoted, 0.4);
  while (const auto trial = study.ask()) study.tell(*trial, 0.3);
  EXPECT_EQ(state_text(study, study.records()[0]), "stopped");
}

}  // namespace
}  // namespace tanren
