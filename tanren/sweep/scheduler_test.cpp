#include "tanren/sweep/scheduler.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace tanren {
namespace {

constexpr double kFailed = std::numeric_limits<double>::infinity();

// Carries out decisions and names them: "start 0 to 1", "resume 3 to 2", "fork 0 for 3 to 20".
class Executor {
 public:
  explicit Executor(const SchedulerOptions& options) : scheduler(make_scheduler(options)) {}

  std::string next() {
    const Decision decision = scheduler->next();
    switch (decision.kind) {
      case Decision::wait: return "wait";
      case Decision::end: return "end";
      case Decision::start:
        scheduler->started(trials_, decision.until, true);
        return fmt::format("start {} to {}", trials_++, decision.until);
      case Decision::resume:
        scheduler->resumed(decision.trial, decision.until);
        return fmt::format("resume {} to {}", decision.trial, decision.until);
      case Decision::fork:
        scheduler->forked(trials_++, decision.until, decision.trial);
        return fmt::format("fork {} for {} to {}", decision.source, decision.trial, decision.until);
    }
    return "";
  }
  void told(int64_t trial, int64_t step, double cost) { scheduler->told(trial, step, cost); }

  std::unique_ptr<Scheduler> scheduler;

 private:
  int64_t trials_ = 0;
};

TEST(Scheduler, refuses_options_that_do_not_fit) {
  const auto refused = [](const SchedulerOptions& options) {
    return testing::error_of<ConfigError>([&] { make_scheduler(options); });
  };
  EXPECT_EQ(
      refused({.kind = "ashe", .trials = 1}),
      "[sweep] scheduler \"ashe\" is unknown; one of none, asha, pbt, external (nearest: asha)");
  EXPECT_EQ(refused({.trials = 0}), "[sweep] trials is 0; give 1 or more");
  EXPECT_EQ(refused({.kind = "asha", .trials = 1}),
            "[sweep] asha needs the steps of a whole trial; set steps");
  EXPECT_EQ(refused({.kind = "asha", .trials = 1, .steps = 9}),
            "[sweep] asha needs first_rung, the steps of its first rung; set it");
  EXPECT_EQ(refused({.kind = "asha", .trials = 1, .steps = 9, .first_rung = 1, .reduction = 1}),
            "[sweep] reduction is 1; give 2 or more");
  EXPECT_EQ(refused({.kind = "pbt", .trials = 1, .steps = 9, .interval = 3}),
            "[sweep] pbt needs a population of 2 or more; raise trials");
  EXPECT_EQ(refused({.kind = "pbt", .trials = 2, .steps = 9}),
            "[sweep] pbt needs interval, the steps between exchanges; set it");
  const std::string late =
      " is 9 and a whole trial has 9 steps; no trial would be judged before "
      "its end";
  EXPECT_EQ(refused({.kind = "asha", .trials = 1, .steps = 9, .first_rung = 9}),
            "[sweep] first_rung" + late);
  EXPECT_EQ(refused({.kind = "pbt", .trials = 2, .steps = 9, .interval = 9}),
            "[sweep] interval" + late);
}

TEST(Scheduler, none_starts_all_trials_and_ends_when_they_did) {
  Executor run({.trials = 2, .steps = 30});
  EXPECT_EQ(run.next(), "start 0 to 30");
  EXPECT_EQ(run.next(), "start 1 to 30");
  EXPECT_EQ(run.next(), "wait");
  run.told(1, 30, 0.5);
  EXPECT_EQ(run.next(), "wait");
  run.told(0, 12, kFailed);
  EXPECT_EQ(run.next(), "end");
  run.scheduler->grow(3);
  EXPECT_EQ(run.next(), "start 2 to 30");
}

TEST(Asha, rungs_grow_by_the_reduction_and_end_with_the_whole_run) {
  using Rungs = std::vector<int64_t>;
  EXPECT_EQ(rungs_of(50, 4, 900), (Rungs{50, 200, 800, 900}));
  EXPECT_EQ(rungs_of(225, 4, 900), (Rungs{225, 900}));
  EXPECT_EQ(rungs_of(900, 4, 900), (Rungs{900}));
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(rungs_of(huge - 1, 1024, huge), (Rungs{huge - 1, huge}));
}

TEST(Asha, promotes_the_best_of_a_rung_and_the_highest_rung_first) {
  Executor run({.kind = "asha", .trials = 4, .steps = 4, .first_rung = 1, .reduction = 2});
  EXPECT_EQ(run.next(), "start 0 to 1");
  run.told(0, 1, 0.4);
  EXPECT_EQ(run.next(), "start 1 to 1");  // one of one is not one of two
  run.told(1, 1, 0.3);
  EXPECT_EQ(run.next(), "resume 1 to 2");
  run.told(1, 2, 0.25);
  EXPECT_EQ(run.next(), "start 2 to 1");
  run.told(2, 1, 0.5);
  EXPECT_EQ(run.next(), "start 3 to 1");
  run.told(3, 1, 0.1);
  EXPECT_EQ(run.next(), "resume 3 to 2");  // trials 3 and 1 are the better half
  run.told(3, 2, 0.05);
  EXPECT_EQ(run.next(), "resume 3 to 4");
  run.told(3, 4, 0.01);
  EXPECT_EQ(run.next(), "end");
}

TEST(Asha, promotes_the_best_of_several_first) {
  Executor run({.kind = "asha", .trials = 4, .steps = 4, .first_rung = 2, .reduction = 2});
  for (int64_t trial = 0; trial < 4; ++trial) run.next();
  const double costs[] = {0.4, 0.2, 0.3, 0.1};
  for (const int64_t trial : {0, 1, 2, 3}) run.told(trial, 2, costs[trial]);
  EXPECT_EQ(run.next(), "resume 3 to 4");
  EXPECT_EQ(run.next(), "resume 1 to 4");
  EXPECT_EQ(run.next(), "wait");
}

TEST(Asha, a_trial_that_paused_early_goes_on_when_worse_ones_have_come) {
  Executor run({.kind = "asha", .trials = 8, .steps = 8, .first_rung = 1, .reduction = 4});
  const double costs[] = {0.1, 0.2, 0.9, 0.8, 0.7, 0.6, 0.5};
  for (int64_t trial = 0; trial < 3; ++trial) {
    EXPECT_EQ(run.next(), fmt::format("start {} to 1", trial));
    run.told(trial, 1, costs[trial]);
  }
  EXPECT_EQ(run.next(), "start 3 to 1");
  run.told(3, 1, costs[3]);
  EXPECT_EQ(run.next(), "resume 0 to 4");
  for (int64_t trial = 4; trial < 7; ++trial) {
    EXPECT_EQ(run.next(), fmt::format("start {} to 1", trial));
    run.told(trial, 1, costs[trial]);
  }
  EXPECT_EQ(run.next(), "start 7 to 1");
  run.told(7, 1, 1.0);
  EXPECT_EQ(run.next(), "resume 1 to 4");  // the second of eight, long after its pause
}

TEST(Asha, a_late_better_trial_is_promoted_beside_the_one_whose_place_it_takes) {
  Executor run({.kind = "asha", .trials = 3, .steps = 4, .first_rung = 2, .reduction = 2});
  for (const double cost : {0.3, 0.5}) {
    const std::string start = run.next();
    run.told(start == "start 0 to 2" ? 0 : 1, 2, cost);
  }
  EXPECT_EQ(run.next(), "resume 0 to 4");
  EXPECT_EQ(run.next(), "start 2 to 2");
  EXPECT_EQ(run.next(), "wait");
  run.told(2, 2, 0.2);
  EXPECT_EQ(run.next(), "resume 2 to 4");
}

TEST(Asha, failures_count_as_results_and_are_never_promoted) {
  Executor run({.kind = "asha", .trials = 4, .steps = 4, .first_rung = 2, .reduction = 2});
  for (int64_t trial = 0; trial < 4; ++trial) EXPECT_EQ(run.next().substr(0, 5), "start");
  run.told(0, 1, kFailed);
  EXPECT_EQ(run.next(), "wait");
  run.told(1, 1, kFailed);
  EXPECT_EQ(run.next(), "wait");  // the best of two has no value
  run.told(2, 2, 0.7);
  EXPECT_EQ(run.next(), "resume 2 to 4");
  run.told(2, 3, kFailed);
  run.told(3, 2, 0.8);
  EXPECT_EQ(run.next(), "resume 3 to 4");
  run.told(3, 4, 0.75);
  EXPECT_EQ(run.next(), "end");
}

TEST(Asha, the_best_goes_on_if_there_are_too_few_for_a_promotion) {
  Executor run({.kind = "asha", .trials = 2, .steps = 64, .first_rung = 4, .reduction = 4});
  for (int64_t trial = 0; trial < 2; ++trial) run.next();
  run.told(0, 4, 0.5);
  run.told(1, 4, 0.4);
  EXPECT_EQ(run.next(), "resume 1 to 16");
  EXPECT_EQ(run.next(), "wait");
  run.told(1, 16, kFailed);
  EXPECT_EQ(run.next(), "resume 0 to 16");  // none has finished yet
  run.told(0, 16, 0.3);
  EXPECT_EQ(run.next(), "resume 0 to 64");
  run.told(0, 64, 0.2);
  EXPECT_EQ(run.next(), "end");
}

TEST(Asha, a_refused_trial_is_no_result_until_it_has_run) {
  Executor run({.kind = "asha", .trials = 2, .steps = 4, .first_rung = 2, .reduction = 2});
  run.next();
  run.next();
  run.scheduler->put_off(0);
  run.told(1, 2, 0.4);
  EXPECT_EQ(run.next(), "end");  // the study resumes what waits
  run.scheduler->resumed(0, 2);
  EXPECT_EQ(run.next(), "wait");
  run.told(0, 2, 0.3);
  EXPECT_EQ(run.next(), "resume 0 to 4");
}

TEST(Pbt, the_worst_quarter_forks_from_the_best_at_each_exchange) {
  Executor run({.kind = "pbt", .trials = 4, .steps = 30, .interval = 10});
  for (int64_t trial = 0; trial < 4; ++trial) {
    EXPECT_EQ(run.next(), fmt::format("start {} to 10", trial));
  }
  run.told(2, 10, 3);
  run.told(3, 10, 4);
  run.told(0, 10, 1);
  EXPECT_EQ(run.next(), "wait");  // for trial 1
  run.told(1, 10, 2);
  EXPECT_EQ(run.next(), "fork 0 for 3 to 20");  // this is trial 4
  EXPECT_EQ(run.next(), "resume 0 to 20");
  EXPECT_EQ(run.next(), "resume 1 to 20");
  EXPECT_EQ(run.next(), "resume 2 to 20");
  EXPECT_EQ(run.next(), "wait");
  run.told(0, 20, 1);
  run.told(1, 20, 0.5);
  run.told(2, 20, 3);
  run.told(4, 20, 2);
  EXPECT_EQ(run.next(), "fork 1 for 2 to 30");
  for (const char* member : {"0", "1", "4"}) {
    EXPECT_EQ(run.next(), std::string("resume ") + member + " to 30");
  }
  for (const int64_t trial : {0, 1, 4, 5}) run.told(trial, 30, 1);
  EXPECT_EQ(run.next(), "end");
}

TEST(Pbt, forks_replace_members_that_failed_and_all_failures_end_it) {
  Executor run({.kind = "pbt", .trials = 4, .steps = 20, .interval = 10});
  for (int64_t trial = 0; trial < 4; ++trial) run.next();
  run.told(0, 10, 1);
  for (const int64_t trial : {1, 2, 3}) run.told(trial, 7, kFailed);
  EXPECT_EQ(run.next(), "fork 0 for 3 to 20");
  EXPECT_EQ(run.next(), "fork 0 for 2 to 20");
  EXPECT_EQ(run.next(), "fork 0 for 1 to 20");
  EXPECT_EQ(run.next(), "resume 0 to 20");
  Executor lost({.kind = "pbt", .trials = 2, .steps = 20, .interval = 10});
  for (int64_t trial = 0; trial < 2; ++trial) lost.next();
  for (const int64_t trial : {0, 1}) lost.told(trial, 7, kFailed);
  EXPECT_EQ(lost.next(), "end");
}

}  // namespace
}  // namespace tanren
