#include "tanren/optimizer/plateau.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/fixture_test_util.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

constexpr double kPlateauPeak = 0.3;

// The C++ side of the cases in tests/fixtures/make/optimizer_fixtures.py.
std::vector<std::pair<std::string, ScheduleOptions>> plateau_cases() {
  ScheduleOptions least{.kind = "reduce_on_plateau"};
  least.mode = "min";
  least.factor = 0.5;
  least.patience = 1;
  ScheduleOptions most = least;
  most.mode = "max";
  most.threshold_mode = "abs";
  most.threshold = 0.05;
  most.cooldown = 2;
  most.patience = 2;
  ScheduleOptions floored = least;
  floored.patience = 0;
  floored.factor = 0.1;
  floored.final_fraction = 0.02;
  return {{"min_rel", least}, {"max_abs", most}, {"floored", floored}};
}

TEST(Plateau, an_unplanned_mode_is_refused) {
  EXPECT_THROW(Plateau({.kind = "reduce_on_plateau"}, kPlateauPeak), ConfigError);
}

TEST(Plateau, a_damaged_state_is_refused_and_that_of_another_schedule_is_none) {
  Plateau plateau(plateau_cases()[0].second, kPlateauPeak);
  State damaged;
  damaged.values["num_bad"] = int64_t{1};
  EXPECT_THROW(plateau.load(damaged), CheckpointError);
  plateau.load({});
  EXPECT_EQ(plateau.scale(), 1);
}

TEST(Plateau, of_another_schedule_stays_at_one_and_has_no_state) {
  Plateau plateau({.kind = "cosine"}, kPlateauPeak);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(plateau.observe(1));
  EXPECT_EQ(plateau.scale(), 1);
  EXPECT_TRUE(plateau.state().values.empty());
  plateau.load({});
}

TEST(Plateau, equals_torch) {
  for (const auto& [name, options] : plateau_cases()) {
    const at::Tensor metrics =
        testing::fixture("schedule_kinds").at("plateau/" + name + "/metrics");
    const at::Tensor rates = testing::fixture("schedule_kinds").at("plateau/" + name + "/rates");
    Plateau plateau(options, kPlateauPeak);
    for (int64_t i = 0; i < metrics.size(0); ++i) {
      const double before = plateau.scale();
      const bool reduced = plateau.observe(metrics[i].item<double>());
      EXPECT_EQ(reduced, plateau.scale() < before) << name << " " << i;
      EXPECT_NEAR(kPlateauPeak * plateau.scale(), rates[i].item<double>(), 1e-12)
          << name << " " << i;
    }
    EXPECT_LT(plateau.scale(), 1) << name;
  }
}

TEST(Plateau, counts_nan_as_no_improvement) {
  Plateau plateau(plateau_cases()[2].second, kPlateauPeak);
  plateau.observe(1);
  EXPECT_TRUE(plateau.observe(std::nan("")));
}

TEST(Plateau, goes_on_where_its_state_was_taken) {
  for (const auto& [name, options] : plateau_cases()) {
    const at::Tensor metrics =
        testing::fixture("schedule_kinds").at("plateau/" + name + "/metrics");
    for (int64_t cut = 0; cut < metrics.size(0); ++cut) {
      Plateau whole(options, kPlateauPeak), resumed(options, kPlateauPeak);
      for (int64_t i = 0; i < metrics.size(0); ++i) {
        if (i == cut) resumed.load(whole.state());
        whole.observe(metrics[i].item<double>());
        if (i >= cut) resumed.observe(metrics[i].item<double>());
      }
      EXPECT_EQ(whole.scale(), resumed.scale()) << name << " " << cut;
      EXPECT_EQ(whole.state().values, resumed.state().values) << name << " " << cut;
    }
  }
}

}  // namespace
}  // namespace tanren
