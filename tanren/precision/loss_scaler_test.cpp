#include "tanren/precision/loss_scaler.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

namespace tanren {
namespace {

PrecisionPlan dynamic_plan() {
  PrecisionPlan plan;
  plan.mode = Mode::fp16;
  plan.scaling = Scaling::dynamic;
  plan.initial_scale = 8;
  plan.growth_interval = 3;
  plan.min_scale = 2;
  return plan;
}

TEST(LossScaler, halves_on_overflow_and_stops_at_its_floor) {
  LossScaler scaler(dynamic_plan());
  scaler.update(Cause::overflow);
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_TRUE(scaler.can_back_off());
  for (int i = 0; i < 50; ++i) scaler.update(Cause::overflow);  // apex went to 1e-317 here
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_FALSE(scaler.can_back_off());
}

TEST(LossScaler, a_non_finite_loss_or_gradient_does_not_change_the_scale) {
  LossScaler scaler(dynamic_plan());
  scaler.update(Cause::nan_loss);
  scaler.update(Cause::nan_gradient);
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScaler, a_spike_is_a_quiet_step) {
  LossScaler scaler(dynamic_plan());
  for (int i = 0; i < 3; ++i) scaler.update(i == 1 ? Cause::spike : Cause::none);
  EXPECT_EQ(scaler.scale(), 16);
}

TEST(LossScaler, grows_after_the_interval_of_quiet_steps_and_an_overflow_restarts_it) {
  LossScaler scaler(dynamic_plan());
  for (int i = 0; i < 3; ++i) scaler.update(Cause::none);
  EXPECT_EQ(scaler.scale(), 16);
  scaler.update(Cause::none);
  scaler.update(Cause::none);
  scaler.update(Cause::overflow);
  EXPECT_EQ(scaler.scale(), 8);
  scaler.update(Cause::none);
  scaler.update(Cause::none);
  EXPECT_EQ(scaler.scale(), 8);
  scaler.update(Cause::none);
  EXPECT_EQ(scaler.scale(), 16);
}

TEST(LossScaler, grows_no_further_than_fp32_can_carry) {
  auto plan = dynamic_plan();
  plan.growth_interval = 1;
  LossScaler scaler(plan);
  for (int i = 0; i < 500; ++i) scaler.update(Cause::none);
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.scale())));
}

TEST(LossScaler, static_and_absent_scales_never_move) {
  auto plan = dynamic_plan();
  plan.scaling = Scaling::fixed;
  LossScaler fixed(plan);
  plan.scaling = Scaling::none;
  LossScaler none(plan);
  for (const auto cause : {Cause::overflow, Cause::none, Cause::none, Cause::none}) {
    fixed.update(cause);
    none.update(cause);
  }
  EXPECT_EQ(fixed.scale(), 8);
  EXPECT_FALSE(fixed.can_back_off());
  EXPECT_EQ(none.scale(), 1);
}

TEST(LossScaler, state_round_trip_keeps_the_quiet_count) {
  LossScaler scaler(dynamic_plan());
  scaler.update(Cause::none);
  scaler.update(Cause::none);
  LossScaler other(dynamic_plan());
  other.load(scaler.state());
  other.update(Cause::none);
  EXPECT_EQ(other.scale(), 16);
}

// A run resumes in another precision: a scale found in the one is no scale for the other.
TEST(LossScaler, takes_no_scale_of_another_kind_or_from_another_first_scale) {
  PrecisionPlan none = dynamic_plan();
  none.scaling = Scaling::none;
  LossScaler grown(dynamic_plan());
  for (int i = 0; i < 6; ++i) grown.update(Cause::none);
  ASSERT_EQ(grown.scale(), 32);
  LossScaler off(none);
  off.load(grown.state());
  EXPECT_EQ(off.scale(), 1);
  LossScaler on(dynamic_plan());
  on.load(off.state());
  EXPECT_EQ(on.scale(), 8);
  PrecisionPlan higher = dynamic_plan();
  higher.initial_scale = 64;
  LossScaler asked(higher);
  asked.load(grown.state());
  EXPECT_EQ(asked.scale(), 64);
  PrecisionPlan floored = dynamic_plan();
  floored.min_scale = 128;
  LossScaler above(floored);
  above.load(grown.state());
  EXPECT_EQ(above.scale(), 128);
}

TEST(LossScaler, takes_the_scale_of_a_checkpoint_that_does_not_say_its_kind) {
  LossScaler scaler(dynamic_plan());
  State old = LossScaler(dynamic_plan()).state();
  old.values.erase("scaling");
  old.values.erase("first_scale");
  old.values["scale"] = 16.0;
  scaler.load(old);
  EXPECT_EQ(scaler.scale(), 16);
}

// Older runs without scaling also stored a scale.
TEST(LossScaler, takes_no_scale_of_an_older_checkpoint_that_had_none) {
  PrecisionPlan none = dynamic_plan();
  none.scaling = Scaling::none;
  State old = LossScaler(none).state();
  old.values.erase("scaling");
  old.values.erase("first_scale");
  ASSERT_EQ(std::get<double>(old.values.at("scale")), 1);
  LossScaler scaler(dynamic_plan());
  scaler.load(old);
  EXPECT_EQ(scaler.scale(), 8);
  PrecisionPlan searching = dynamic_plan();
  searching.find_initial_scale = true;
  LossScaler searched(searching);
  searched.load(old);
  EXPECT_TRUE(searched.wants_search());
}

TEST(LossScaler, stays_below_its_ceiling_whether_it_grows_starts_or_is_loaded) {
  PrecisionPlan plan = dynamic_plan();
  plan.max_scale = 4;
  EXPECT_EQ(LossScaler(plan).scale(), 4);
  LossScaler loaded(plan);
  loaded.load(LossScaler(dynamic_plan()).state());
  EXPECT_EQ(loaded.scale(), 4);
  loaded.start_from({1024, 5});
  EXPECT_EQ(loaded.scale(), 4);
  EXPECT_EQ(std::get<int64_t>(loaded.state().values.at("quiet_steps")), 5);
}

TEST(LossScaler, scaled_multiplies_a_loss_for_own_loops) {
  EXPECT_EQ(LossScaler(dynamic_plan()).scaled(at::ones({})).item<float>(), 8.0f);
}

}  // namespace
}  // namespace tanren
