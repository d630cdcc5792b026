#include "tanren/sweep/space.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace tanren {
namespace {

using testing::error_of;

// kind, momentum only with sgd, and a rate.
Space optimizers() {
  return Space({{.key = "kind", .values = {"adamw", "sgd"}},
                {.key = "momentum", .low = 0.5, .high = 0.9, .points = 3, .when = "kind=sgd"},
                {.key = "rate", .low = 1e-3, .high = 1e-1, .scale = "log", .points = 3}});
}

TEST(Space, tells_every_problem_of_its_dimensions_at_once) {
  const std::string error = error_of<ConfigError>([] {
    Space({{.key = "a", .low = 2.0, .high = 1.0},
           {.key = "b", .low = 0.0, .high = 1.0, .scale = "log"},
           {.key = "b", .values = {"x", "x"}},
           {.key = "c"},
           {.key = "d", .low = 1.0},
           {.key = "e", .low = 1.0, .high = 2.0, .values = {"3"}},
           {.key = "f", .values = {"1"}, .when = "kin=x"},
           {.key = "kind", .values = {"y"}, .when = "kind=y"},
           {.key = "g", .values = {"1"}, .when = "kind=x"},
           {.key = "h", .values = {"1"}, .when = "a=1"},
           {.key = "i", .low = 0.5, .high = 2.0, .whole = true, .points = 1},
           {.values = {"1"}, .when = "nothing"}});
  });
  for (const char* line :
       {"[sweep] a: low 2 is not below high 1; swap them, or give values",
        "[sweep] b: scale log needs low above 0, not 0", "[sweep] b: is there twice; drop one",
        "[sweep] b: has the value x twice; drop one",
        "[sweep] c: has neither low and high nor values; give one",
        "[sweep] d: has no high; give both ends", "[sweep] e: has values and a range; keep one",
        "[sweep] f: when names kin, which is no dimension; nearest: kind",
        "[sweep] kind: when leads back to kind itself; drop one condition",
        "[sweep] g: when names x, which is none of the values of kind: y",
        "[sweep] h: when names a, which is a range; only values can be a condition",
        "[sweep] i: takes whole numbers, and its ends are 0.5 and 2",
        "[sweep] i: points is 1; give 2 to 100000",
        "[sweep] a dimension has no key; name what it searches",
        "[sweep] when \"nothing\" is no KEY=VALUE"}) {
    TANREN_EXPECT_CONTAINS(error + "\n", std::string(line) + "\n");
  }
}

TEST(Space, refuses_values_that_a_terminal_would_obey) {
  EXPECT_EQ(error_of<ConfigError>([] {
              Space({{.key = "a", .values = {"\x1b[2J", "b"}}});
            }),
            "[sweep] a: has a control character in the value  [2J; take it out");
}

TEST(Space, refuses_conditions_in_a_circle) {
  const std::string error = error_of<ConfigError>([] {
    Space({{.key = "a", .values = {"1"}, .when = "c=1"},
           {.key = "b", .values = {"1"}, .when = "a=1"},
           {.key = "c", .values = {"1"}, .when = "b=1"},
           {.key = "d", .values = {"1"}, .when = "c=1"}});
  });
  for (const char* key : {"a", "b", "c"}) {
    TANREN_EXPECT_CONTAINS(error, std::string("[sweep] ") + key + ": when leads back");
  }
  EXPECT_FALSE(testing::contains(error, "[sweep] d")) << error;  // it is beside the circle
}

TEST(Space, gives_each_part_of_a_scale_the_same_share) {
  const Space space({{.key = "rate", .low = 1e-4, .high = 1.0, .scale = "log"},
                     {.key = "layers", .low = 1.0, .high = 4.0, .whole = true},
                     {.key = "kind", .values = {"a", "b"}}});
  EXPECT_NEAR(space.value_at(0, 0.5), 1e-2, 1e-12);
  EXPECT_NEAR(space.value_at(0, 0), 1e-4, 1e-15);
  EXPECT_GE(space.value_at(0, 0), 1e-4);
  std::map<double, int> layers, kinds;
  for (int i = 0; i < 400; ++i) {
    ++layers[space.value_at(1, i / 400.0)];
    ++kinds[space.value_at(2, i / 400.0)];
  }
  EXPECT_EQ(layers, (std::map<double, int>{{1, 100}, {2, 100}, {3, 100}, {4, 100}}));
  EXPECT_EQ(kinds, (std::map<double, int>{{0, 200}, {1, 200}}));
}

TEST(Space, has_a_dimension_only_where_its_condition_holds) {
  // The condition comes after the dimension that hangs on it.
  const Space space({{.key = "momentum", .low = 0.5, .high = 0.9, .when = "kind=sgd"},
                     {.key = "kind", .values = {"adamw", "sgd"}}});
  const auto point_with = [&](double kind) {
    return space.point([&](size_t dimension) { return dimension == 1 ? kind : 0.75; });
  };
  EXPECT_EQ(space.values_of(point_with(0)), (TrialValues{{"kind", "adamw"}}));
  EXPECT_EQ(space.values_of(point_with(1)), (TrialValues{{"momentum", "0.75"}, {"kind", "sgd"}}));
}

TEST(Space, reads_values_back_to_the_same_point_and_refuses_others) {
  const Space space = optimizers();
  const SpacePoint point{1, 0.1 + 0.6, 0.01 / 3};
  EXPECT_EQ(space.point_of(space.values_of(point)), point);
  const auto refused = [&](const TrialValues& values) {
    return error_of<InputError>([&] { space.point_of(values); });
  };
  EXPECT_EQ(refused({{"kind", "lion"}}), "[sweep] kind=lion is not in the space");
  EXPECT_EQ(refused({{"kind", "adamw"}, {"rate", "0.2"}}), "[sweep] rate=0.2 is not in the space");
  EXPECT_EQ(refused({{"kind", "adamw"}, {"rate", "0.1x"}}),
            "[sweep] rate=0.1x is not in the space");
  EXPECT_EQ(refused({{"kind", "sgd"}, {"rate", "0.01"}}), "[sweep] a trial lacks momentum");
  EXPECT_EQ(refused({{"kind", "adamw"}, {"momentum", "0.6"}, {"rate", "0.01"}}),
            "[sweep] a trial may not have momentum");
  EXPECT_EQ(refused({{"width", "1"}}), "[sweep] width is no dimension of the space");
}

TEST(Space, counts_the_grid_by_choices_and_finds_each_point_by_its_number) {
  const Space space = optimizers();
  ASSERT_EQ(space.grid_size(), 12);  // (adamw + sgd × 3 momenta) × 3 rates
  std::set<std::string> seen;
  for (int64_t i = 0; i < 12; ++i) {
    std::string text;
    for (const auto& [key, value] : space.values_of(space.grid_point(i))) text += value + " ";
    seen.insert(text);
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_EQ(space.values_of(space.grid_point(0)),
            (TrialValues{{"kind", "adamw"}, {"rate", "0.001"}}));
  EXPECT_NEAR(space.grid_point(1)[2], 0.01, 1e-12);  // the last dimension varies fastest
  EXPECT_EQ(space.values_of(space.grid_point(3)),
            (TrialValues{{"kind", "sgd"}, {"momentum", "0.5"}, {"rate", "0.001"}}));
  EXPECT_EQ(space.values_of(space.grid_point(11)),
            (TrialValues{{"kind", "sgd"}, {"momentum", "0.9"}, {"rate", "0.1"}}));
}

TEST(Space, counts_equal_whole_numbers_of_a_grid_once_and_bounds_its_size) {
  const Space whole({{.key = "layers", .low = 1.0, .high = 4.0, .whole = true, .points = 10}});
  ASSERT_EQ(whole.grid_size(), 4);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(whole.grid_point(i)[0], static_cast<double>(i + 1));
  std::vector<DimensionOptions> many;
  for (int i = 0; i < 10; ++i) {
    many.push_back({.key = "x" + std::to_string(i), .low = 0.0, .high = 1.0, .points = 1000});
  }
  EXPECT_EQ(Space(many).grid_size(), int64_t{1} << 40);
  EXPECT_EQ(
      error_of<ConfigError>([] { Space({{.key = "x", .low = 0.0, .high = 1.0}}).grid_size(); }),
      "[sweep] x: a range in a grid needs points; set them");
}

TEST(Space, perturbs_numbers_by_a_fifth_and_choices_to_a_neighbour) {
  const Space space({{.key = "rate", .low = 0.1, .high = 1.0},
                     {.key = "width", .low = 1.0, .high = 100.0, .whole = true},
                     {.key = "kind", .values = {"a", "b", "c"}}});
  const SpacePoint point{0.5, 10, 1};
  const auto changed = [&](double anew, double way) {
    return space.perturbed(point, [&](size_t, int64_t use) {
      return use == 0 ? anew : use == 1 ? 0.0 : way;
    });
  };
  EXPECT_EQ(changed(0.9, 0.2), (SpacePoint{0.5 * 1.2, 12, 2}));
  EXPECT_EQ(changed(0.9, 0.7), (SpacePoint{0.5 * 0.8, 8, 0}));
  EXPECT_EQ(changed(0.2, 0.7), (SpacePoint{0.1, 1, 0}));  // drawn again, at the lower end
  EXPECT_EQ(space.perturbed({0.9, 100, 2}, [](size_t, int64_t use) { return use == 0 ? 0.5 : 0; }),
            (SpacePoint{1.0, 100, 2}));  // not beyond the ends
}

}  // namespace
}  // namespace tanren
