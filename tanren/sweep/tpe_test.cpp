#include "tanren/sweep/parzen.h"
#include "tanren/sweep/sampler.h"
#include "tests/support/search_functions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

using testing::branin;
using testing::mixed;
using testing::search;

double median_regret(const std::string& sampler, const testing::SearchFunction& function) {
  return testing::median_of_sorted(testing::regrets_of(sampler, function, 20, 100));
}

TEST(Tpe, finds_better_points_than_random_draws_on_smooth_and_on_mixed_functions) {
  for (const testing::SearchFunction& function : testing::search_functions()) {
    const double tpe = median_regret("tpe", function), random = median_regret("random", function);
    EXPECT_GE(tpe, -1e-5) << function.name;
    EXPECT_LT(tpe, random / 2) << function.name;
  }
}

TEST(Tpe, begins_with_ten_random_trials) {
  const testing::SearchFunction function = branin();
  const auto tpe = search(*make_tpe_sampler(3, true), function, 12);
  for (int64_t id = 0; id < 10; ++id) {
    EXPECT_EQ(tpe[static_cast<size_t>(id)].point, random_point(function.space, 3, id));
  }
  EXPECT_NE(tpe[10].point, random_point(function.space, 3, 10));
}

TEST(Tpe, looks_for_the_highest_value_if_that_is_best) {
  const testing::SearchFunction function = mixed();
  const auto least = search(*make_tpe_sampler(3, true), function, 30);
  const auto most = search(*make_tpe_sampler(3, false), function, 30, -1);
  for (size_t i = 0; i < least.size(); ++i) {
    EXPECT_EQ(function.space.values_of(most[i].point), function.space.values_of(least[i].point));
  }
}

// Ten trials of each of two choices; the first is better.
std::vector<TrialRecord> two_choices() {
  std::vector<TrialRecord> records(20);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].id = static_cast<int64_t>(i);
    records[i].point = {static_cast<double>(i % 2)};
    records[i].state = TrialState::ended;
    records[i].value = static_cast<double>(i % 2);
  }
  return records;
}

TEST(Tpe, counts_running_trials_as_bad) {
  const Space space({{.key = "kind", .values = {"good", "bad"}}});
  const auto sampler = make_tpe_sampler(0, true);
  auto records = two_choices();
  EXPECT_EQ(sampler->propose(space, 300, records), SpacePoint{0});
  for (int64_t id = 20; id < 220; ++id) {
    TrialRecord running;
    running.id = id;
    running.point = {0};
    records.push_back(running);
  }
  EXPECT_EQ(sampler->propose(space, 300, records), SpacePoint{1});
}

TEST(Tpe, ranks_trials_without_a_value_last_and_early_stops_behind_later_ones) {
  const Space space({{.key = "kind", .values = {"good", "bad"}}});
  const auto sampler = make_tpe_sampler(0, true);
  auto failed = two_choices();
  for (auto& record : failed) {
    if (record.id % 2 == 0) record.value.reset();
    if (record.id % 2 == 0) record.outcome = TrialOutcome::crashed;
  }
  EXPECT_EQ(sampler->propose(space, 300, failed), SpacePoint{1});
  auto stopped = two_choices();
  for (auto& record : stopped) record.step = record.id % 2 == 0 ? 50 : 200;
  EXPECT_EQ(sampler->propose(space, 300, stopped), SpacePoint{1});
}

TEST(Parzen, the_quantile_is_that_of_the_normal_distribution) {
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-9);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-8);
  EXPECT_NEAR(normal_quantile(0.001), -3.090232306167813, 1e-8);
  EXPECT_NEAR(normal_quantile(0.999), 3.090232306167813, 1e-8);
}

TEST(Parzen, densities_sum_to_one_over_the_space) {
  const Space space({{.key = "x", .low = -2.0, .high = 3.0}, {.key = "k", .values = {"a", "b"}}});
  const SpacePoint first{-1.9, 0}, second{1, 1}, third{0, 0};
  const ParzenMixture mixture(space, {&first, &second, &third}, {0.5, 2, 0.5});
  constexpr int kParts = 5000;
  double sum = 0;
  for (int i = 0; i < kParts; ++i) {
    const double x = -2 + 5 * (i + 0.5) / kParts;
    for (const double choice : {0.0, 1.0}) sum += std::exp(mixture.log_density({x, choice}));
  }
  EXPECT_NEAR(sum * 5 / kParts, 1, 1e-3);
}

TEST(Parzen, a_point_that_lacks_a_dimension_is_dense_nowhere_in_it) {
  const Space space({{.key = "kind", .values = {"a", "b"}},
                     {.key = "x", .low = 0.0, .high = 1.0, .when = "kind=b"}});
  const SpacePoint without{0, kNotThere}, with{1, 0.1};
  const ParzenMixture mixture(space, {&without}, {}), other(space, {&with}, {});
  const auto ratio = [](const ParzenMixture& of) {
    return of.log_density({1, 0.1}) - of.log_density({1, 0.9});
  };
  EXPECT_NEAR(ratio(mixture), 0, 1e-9);  // both are as far from the middle
  EXPECT_GT(ratio(other), 0.5);
  EXPECT_LT(mixture.log_density({1, 0.5}), mixture.log_density({0, kNotThere}));
}

TEST(Parzen, draws_lie_in_the_space_and_near_its_kernels) {
  const Space space({{.key = "x", .low = 0.0, .high = 1.0},
                     {.key = "n", .low = 1.0, .high = 9.0, .whole = true}});
  const SpacePoint centre{0.02, 7};
  const ParzenMixture mixture(space, {&centre}, {9});
  int near = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const SpacePoint point =
        mixture.draw([&](size_t dimension) { return keyed_share(1, i, dimension); });
    ASSERT_GE(point[0], 0);
    ASSERT_LE(point[0], 1);
    ASSERT_EQ(point[1], std::floor(point[1]));
    ASSERT_GE(point[1], 1);
    ASSERT_LE(point[1], 9);
    if (point[0] < 0.5 && std::abs(point[1] - 7) <= 2) ++near;
  }
  EXPECT_GT(near, 350);  // nine of ten draws are of the kernel
}

}  // namespace
}  // namespace tanren
