#include "tanren/sweep/sampler.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <set>

namespace tanren {
namespace {

Space square() {
  return Space({{.key = "x", .low = 0.0, .high = 1.0, .points = 2},
                {.key = "y", .low = 0.0, .high = 1.0, .points = 2}});
}

TEST(Sampler, an_unknown_kind_names_the_nearest) {
  EXPECT_EQ(testing::error_of<ConfigError>([] { make_sampler({.kind = "radnom"}); }),
            "[sweep] sampler \"radnom\" is unknown; one of grid, random, tpe (nearest: random)");
}

TEST(Sampler, a_keyed_draw_hangs_on_seed_trial_dimension_and_use) {
  const std::set<double> draws = {keyed_share(1, 2, 3, 4), keyed_share(2, 2, 3, 4),
                                  keyed_share(1, 3, 3, 4), keyed_share(1, 2, 4, 4),
                                  keyed_share(1, 2, 3, 5)};
  EXPECT_EQ(draws.size(), 5u);
  EXPECT_EQ(keyed_share(1, 2, 3, 4), keyed_share(1, 2, 3, 4));
}

TEST(Sampler, keyed_draws_are_uniform) {
  double sum = 0, squares = 0;
  for (int64_t trial = 0; trial < 5000; ++trial) {
    for (size_t dimension = 0; dimension < 2; ++dimension) {
      const double share = keyed_share(7, trial, dimension);
      ASSERT_GE(share, 0);
      ASSERT_LT(share, 1);
      sum += share;
      squares += share * share;
    }
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);  // seven standard errors
  EXPECT_NEAR(squares / 10000, 1.0 / 3, 0.02);
}

TEST(Sampler, random_does_not_read_earlier_trials_and_another_seed_draws_others) {
  const Space space = square();
  const auto sampler = make_sampler({.kind = "random", .seed = 5});
  std::vector<TrialRecord> records(7);
  for (auto& record : records) record.point = {0.5, 0.5};
  const SpacePoint point = sampler->propose(space, 7, {});
  EXPECT_EQ(sampler->propose(space, 7, records), point);
  EXPECT_NE(point[0], point[1]);
  EXPECT_NE(sampler->propose(space, 8, {}), point);
  EXPECT_NE(make_sampler({.kind = "random", .seed = 6})->propose(space, 7, {}), point);
  EXPECT_EQ(sampler->most_trials(space), -1);
}

TEST(Sampler, grid_goes_through_all_points) {
  const Space space = square();
  const auto sampler = make_sampler({.kind = "grid"});
  ASSERT_EQ(sampler->most_trials(space), 4);
  std::set<SpacePoint> points;
  for (int64_t id = 0; id < 4; ++id) points.insert(sampler->propose(space, id, {}));
  EXPECT_EQ(points, (std::set<SpacePoint>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

}  // namespace
}  // namespace tanren
