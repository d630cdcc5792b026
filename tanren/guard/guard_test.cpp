#include "tanren/guard/guard.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

const Evidence kBadLoss{.loss_finite = false, .gradients_finite = false, .can_back_off = true};
const Evidence kBadGradient{.gradients_finite = false};
const Evidence kOverflow{.gradients_finite = false, .can_back_off = true};

TEST(Guard, stops_at_a_non_finite_loss_by_default_even_under_loss_scaling) {
  Guard guard(GuardOptions{});
  const auto verdict = guard.judge(kBadLoss);
  EXPECT_EQ(verdict.action, Action::halt);
  EXPECT_EQ(verdict.cause, Cause::nan_loss);
}

TEST(Guard, tells_overflow_from_a_non_finite_gradient_by_whether_the_scale_can_back_off) {
  Guard guard(GuardOptions{.nan_gradient = "skip"});
  EXPECT_EQ(guard.judge(kOverflow).cause, Cause::overflow);
  EXPECT_EQ(guard.judge(kBadGradient).cause, Cause::nan_gradient);
}

TEST(Guard, halts_after_so_many_skips_in_a_row) {
  Guard guard(GuardOptions{.nan_loss = "skip", .max_skips = 3});
  EXPECT_EQ(guard.judge(kBadLoss).action, Action::skip);
  EXPECT_EQ(guard.judge(kBadLoss).action, Action::skip);
  EXPECT_EQ(guard.judge({}).action, Action::apply);  // a good update starts the count again
  EXPECT_EQ(guard.judge(kBadLoss).action, Action::skip);
  EXPECT_EQ(guard.judge(kBadLoss).action, Action::skip);
  EXPECT_EQ(guard.judge(kBadLoss).action, Action::halt);
}

// Issue 21: the next bad batch halted a run that continued after a halt.
TEST(Guard, a_halt_ends_the_row_so_that_a_run_that_goes_on_has_one_of_its_own) {
  const GuardOptions options{.nan_loss = "skip", .max_skips = 2};
  Guard guard(options);
  guard.judge(kBadLoss);
  EXPECT_EQ(guard.judge(kBadLoss).action, Action::halt);
  Guard next(options);
  next.load(guard.state());
  EXPECT_EQ(next.judge(kBadLoss).action, Action::skip);
  EXPECT_EQ(next.judge(kBadLoss).action, Action::halt);
}

TEST(Guard, overflow_never_counts_against_the_run) {
  Guard guard(GuardOptions{.nan_loss = "skip", .max_skips = 2});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(guard.judge(kOverflow).action, Action::skip);
  EXPECT_EQ(guard.skips_in_a_row(), 0);
}

TEST(Guard, its_count_survives_a_resume) {
  Guard guard(GuardOptions{.nan_loss = "skip", .max_skips = 2});
  guard.judge(kBadLoss);
  Guard other(GuardOptions{.nan_loss = "skip", .max_skips = 2});
  other.load(guard.state());
  EXPECT_EQ(other.judge(kBadLoss).action, Action::halt);
}

}  // namespace
}  // namespace tanren
