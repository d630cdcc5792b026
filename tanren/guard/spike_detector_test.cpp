#include "tanren/guard/spike_detector.h"

#include "tanren/guard/guard.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

const GuardOptions kShort{.spike_z = 4, .spike_window = 20};

// A falling loss with a ripple. It has no randomness, so that the test is deterministic.
double usual_loss(int i) { return 2.0 / (1 + 0.01 * i) + 0.05 * std::sin(1.7 * i); }
double usual_norm(int i) { return 1.0 + 0.1 * std::cos(2.3 * i); }

TEST(SpikeDetector, tells_a_spike_of_the_loss_with_its_mean) {
  SpikeDetector detector(kShort);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(detector.look(usual_loss(i), usual_norm(i))) << i;
  const auto spike = detector.look(5.0, usual_norm(100));
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->what, "loss");
  EXPECT_EQ(spike->value, 5.0);
  EXPECT_NEAR(spike->mean, usual_loss(95), 0.1);
  EXPECT_GT(spike->z, 4);
}

TEST(SpikeDetector, tells_a_spike_of_the_gradient_norm) {
  SpikeDetector detector(kShort);
  for (int i = 0; i < 50; ++i) detector.look(usual_loss(i), usual_norm(i));
  const auto spike = detector.look(usual_loss(50), 30.0);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->what, "grad_norm");
}

TEST(SpikeDetector, says_nothing_before_a_window_is_seen_and_nothing_of_a_fall) {
  SpikeDetector detector(kShort);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(detector.look(i % 5 == 4 ? 50.0 : 1.0, 1.0));
  SpikeDetector falling(kShort);
  for (int i = 0; i < 50; ++i) falling.look(usual_loss(i), 1.0);
  EXPECT_FALSE(falling.look(-100.0, 0.0));
}

TEST(SpikeDetector, a_spike_does_not_hide_the_next_and_a_new_level_is_learnt) {
  SpikeDetector detector(kShort);
  for (int i = 0; i < 100; ++i) detector.look(usual_loss(i), 1.0);
  EXPECT_TRUE(detector.look(50.0, 1.0));
  EXPECT_FALSE(detector.look(usual_loss(101), 1.0));
  EXPECT_TRUE(detector.look(50.0, 1.0));
  int told = 0;
  for (int i = 0; i < 200; ++i) told += detector.look(10.0, 1.0) ? 1 : 0;
  EXPECT_LT(told, 60) << "ten is the usual loss by now";
  EXPECT_FALSE(detector.look(10.0, 1.0));
}

TEST(SpikeDetector, a_value_that_never_moves_may_move_a_little) {
  SpikeDetector detector(kShort);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(detector.look(1.0, 1.0));
  EXPECT_FALSE(detector.look(1.003, 1.0));
  EXPECT_TRUE(detector.look(1.1, 1.0));
}

TEST(SpikeDetector, zero_turns_it_off) {
  SpikeDetector detector({.spike_z = 0});
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(detector.look(i == 299 ? 1e9 : 1.0, 1.0));
}

TEST(GuardSpikes, a_spike_is_told_and_applied_and_counts_against_nobody) {
  Guard guard(kShort);
  const auto judge = [&](double loss) { return guard.judge({.loss = loss, .grad_norm = 1.0}); };
  for (int i = 0; i < 50; ++i) EXPECT_EQ(judge(usual_loss(i)).cause, Cause::none);
  const Verdict verdict = judge(50.0);
  EXPECT_EQ(verdict.action, Action::apply);
  EXPECT_EQ(verdict.cause, Cause::spike);
  ASSERT_TRUE(guard.spike());
  EXPECT_EQ(guard.skips_in_a_row(), 0);
  EXPECT_EQ(judge(usual_loss(51)).cause, Cause::none);
  EXPECT_FALSE(guard.spike());
}

TEST(GuardSpikes, an_update_that_is_not_applied_is_not_looked_at) {
  Guard guard(GuardOptions{.nan_loss = "skip", .max_skips = 100, .spike_z = 4, .spike_window = 20});
  for (int i = 0; i < 50; ++i) guard.judge({.loss = 1.0, .grad_norm = 1.0});
  const auto before = guard.state().values;
  guard.judge({.loss_finite = false, .loss = INFINITY, .grad_norm = INFINITY});
  EXPECT_EQ(guard.state().values.at("spike.loss.mean"), before.at("spike.loss.mean"));
}

TEST(GuardSpikes, its_window_resumes_bitwise) {
  Guard whole(kShort), first(kShort), second(kShort);
  const auto feed = [](Guard& guard, int i) {
    return guard.judge(
        {.loss = usual_loss(i) + (i % 40 == 39 ? 3 : 0), .grad_norm = usual_norm(i)});
  };
  for (int i = 0; i < 60; ++i) feed(whole, i), feed(first, i);
  second.load(first.state());
  for (int i = 60; i < 200; ++i) {
    const Verdict one = feed(whole, i), other = feed(second, i);
    ASSERT_EQ(one.cause, other.cause);
    if (one.cause == Cause::spike) {
      ASSERT_EQ(whole.spike()->z, second.spike()->z);
    }
  }
  EXPECT_EQ(whole.state().values, second.state().values);
}

}  // namespace
}  // namespace tanren
