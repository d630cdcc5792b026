#include "tanren/train/selection.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <limits>

namespace tanren {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Plan plan_of(int64_t best, int64_t patience) {
  Plan plan;
  plan.checkpoint.best = best;
  plan.early_stop.patience = patience;
  return plan;
}

struct Judged {
  Plan plan;
  Selection selection;
  explicit Judged(const Plan& asked) : plan(asked) { selection.adopt(plan); }

  EvaluationReport last;
  bool judge(int64_t step, double loss) {
    last = {};
    last.step = step;
    last.values = {{"loss", loss}, {"accuracy", 1 - loss}};
    return selection.judge(plan, last);
  }
  std::vector<int64_t> best_steps() const {
    std::vector<int64_t> steps;
    for (const auto& ranked : selection.best) steps.push_back(ranked.step);
    return steps;
  }
};

using Steps = std::vector<int64_t>;

TEST(Selection, refuses_a_metric_that_the_evaluation_lacks) {
  Judged run(plan_of(1, 0));
  run.plan.best.metric = "f1";
  EXPECT_THROW(run.judge(1, 0.5), ConfigError);
  EXPECT_EQ(run.selection.judged_step, -1) << "it is owed, not judged";
  Judged both(plan_of(1, 1));
  both.plan.early_stop_by.metric = "f1";
  EXPECT_THROW(both.judge(1, 0.5), ConfigError);
  EXPECT_TRUE(both.best_steps().empty()) << "all of it or nothing";
}

TEST(Selection, never_ranks_a_nan_and_counts_it_as_no_improvement) {
  Judged run(plan_of(2, 2));
  EXPECT_FALSE(run.judge(1, kNan));
  EXPECT_FALSE(run.judge(2, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(run.best_steps().empty());
  EXPECT_EQ(run.last.ends_run, "loss has not been a number in 2 evaluations (early_stop)");
}

TEST(Selection, ranks_the_best_n_the_older_first_among_equals) {
  Judged run(plan_of(2, 0));
  EXPECT_TRUE(run.judge(1, 0.5));
  EXPECT_TRUE(run.judge(2, 0.5));
  EXPECT_FALSE(run.judge(3, 0.5)) << "an equal one displaces none";
  EXPECT_EQ(run.best_steps(), (Steps{1, 2}));
  EXPECT_TRUE(run.judge(4, 0.4));
  EXPECT_FALSE(run.judge(5, kNan));
  EXPECT_EQ(run.best_steps(), (Steps{4, 1}));
  EXPECT_EQ(run.last.ends_run, "");
}

TEST(Selection, takes_the_higher_as_better_where_the_plan_says_so) {
  Judged run(plan_of(1, 0));
  run.plan.best = {"accuracy", false};
  run.selection.adopt(run.plan);
  run.judge(1, 0.5);
  EXPECT_FALSE(run.judge(2, 0.6));
  EXPECT_TRUE(run.judge(3, 0.4));
}

TEST(Selection, ends_a_run_after_patience_evaluations_without_improvement_beyond_min_delta) {
  Judged run(plan_of(0, 2));
  run.plan.early_stop.min_delta = 0.1;
  run.plan.early_stop.start = 3;
  run.judge(1, 0.1);  // before the start: does not count
  run.judge(3, 1.0);
  run.judge(4, 0.95);
  EXPECT_EQ(run.selection.waited, 1);
  run.judge(5, 0.8);
  EXPECT_EQ(run.selection.waited, 0);
  run.judge(6, 0.75);
  EXPECT_EQ(run.last.ends_run, "");
  run.judge(7, 0.71);
  EXPECT_EQ(run.last.ends_run,
            "loss has not improved on 0.8 of step 5 in 2 evaluations (early_stop)");
  EXPECT_EQ(run.selection.end_reason(run.plan), run.last.ends_run);
  run.plan.early_stop.patience = 3;
  EXPECT_EQ(run.selection.end_reason(run.plan), "") << "more patience reopens it";
}

TEST(Selection, judges_a_step_once) {
  Judged run(plan_of(1, 5));
  run.judge(1, 0.5);
  run.judge(2, 0.6);
  EXPECT_FALSE(run.judge(2, 0.6));
  EXPECT_EQ(run.selection.waited, 1);
}

TEST(Selection, resumes_from_its_state_and_from_a_state_without_one) {
  Judged run(plan_of(3, 5));
  for (const auto& [step, loss] :
       std::vector<std::pair<int64_t, double>>{{1, 0.5}, {2, 1.0 / 3}, {3, 0.4}, {4, 0.9}}) {
    run.judge(step, loss);
  }
  Judged other(run.plan);
  other.selection.load(run.selection.state());
  EXPECT_EQ(other.selection.state().values, run.selection.state().values);
  EXPECT_EQ(other.best_steps(), (Steps{2, 3, 1}));
  other.selection.load({});
  EXPECT_TRUE(other.best_steps().empty());
  EXPECT_EQ(other.selection.judged_step, -1);
}

// Issue 22: evaluations may be of other data meanwhile.
TEST(Selection, forgets_what_it_waited_for_while_nothing_stops_the_run_early) {
  Judged run(plan_of(0, 3));
  run.judge(1, 0.5);
  run.judge(2, 0.6);
  ASSERT_EQ(run.selection.waited, 1);
  run.plan.early_stop.patience = 0;
  run.selection.adopt(run.plan);
  run.plan.early_stop.patience = 3;
  run.selection.adopt(run.plan);
  EXPECT_EQ(run.selection.waited, 0);
  EXPECT_FALSE(run.selection.record);
}

TEST(Selection, forgets_what_another_metric_measured_and_shrinks_to_fewer) {
  Judged run(plan_of(3, 5));
  run.judge(1, 0.5);
  run.judge(2, 0.4);
  run.judge(3, 0.6);
  run.plan.checkpoint.best = 1;
  run.selection.adopt(run.plan);
  EXPECT_EQ(run.best_steps(), (Steps{2}));
  EXPECT_EQ(run.selection.waited, 1);
  run.plan.best = run.plan.early_stop_by = {"accuracy", false};
  run.selection.adopt(run.plan);
  EXPECT_TRUE(run.best_steps().empty());
  EXPECT_EQ(run.selection.waited, 0);
  EXPECT_FALSE(run.selection.record);
}

}  // namespace
}  // namespace tanren
