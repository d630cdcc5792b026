#include "tanren/page/plot_axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

std::vector<std::string> texts_of(const PlotAxis& axis) {
  std::vector<std::string> texts;
  for (const PlotTick& tick : axis.ticks()) texts.push_back(tick.text);
  return texts;
}
using Texts = std::vector<std::string>;

TEST(PlotAxis, of_any_two_numbers_has_ends_apart_and_few_ticks_between) {
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  const std::vector<std::pair<double, double>> ends = {
      {0, 0},   {-kMost, kMost}, {0, kLeast}, {1, 1},           {1, std::nextafter(1, 2)},
      {-3, -3}, {kLeast, kMost}, {1e-8, 1e8}, {0.0101, 0.0102}, {123456789, 123456790}};
  for (const auto& [low, high] : ends) {
    for (const bool is_log : {false, true}) {
      if (is_log && low <= 0) continue;
      SCOPED_TRACE(::testing::Message() << low << " " << high << " " << is_log);
      const PlotAxis axis = axis_over(low, high, is_log);
      ASSERT_LT(axis.low, axis.high);
      EXPECT_EQ(axis.share(axis.low), 0);
      EXPECT_NEAR(axis.share(axis.high), 1, 1e-12);
      const auto ticks = axis.ticks();
      EXPECT_GE(ticks.size(), 2u);
      EXPECT_LE(ticks.size(), 10u);
      for (size_t i = 0; i < ticks.size(); ++i) {
        EXPECT_GE(axis.share(ticks[i].value), -1e-9);
        EXPECT_LE(axis.share(ticks[i].value), 1 + 1e-9);
        if (i > 0) {
          EXPECT_NE(ticks[i].text, ticks[i - 1].text);
        }
      }
    }
  }
}

TEST(PlotAxis, counts_in_ones_twos_and_fives) {
  EXPECT_EQ(texts_of({0, 1}), (Texts{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  EXPECT_EQ(texts_of({-30, 30}), (Texts{"-30", "-20", "-10", "0", "10", "20", "30"}));
  EXPECT_EQ(tick_step(9), 2);
  EXPECT_EQ(tick_step(30), 5);
}

TEST(PlotAxis, counts_in_powers_of_ten_where_it_is_logarithmic) {
  EXPECT_EQ(texts_of({1e-4, 0.1, true}), (Texts{"0.0001", "0.001", "0.01", "0.1"}));
  EXPECT_EQ(texts_of({0.9, 21, true}), (Texts{"1", "2", "5", "10", "20"}));
  EXPECT_EQ(texts_of({1, 1.5, true}), (Texts{"1", "1.1", "1.2", "1.3", "1.4", "1.5"}));
  const PlotAxis axis{1e-4, 0.01, true};
  EXPECT_NEAR(axis.share(1e-3), 0.5, 1e-12);
  const PlotAxis roomy = axis_over(1, 100, true, 0.5);
  EXPECT_NEAR(roomy.low, 0.1, 1e-12);
  EXPECT_NEAR(roomy.high, 1000, 1e-9);
}

}  // namespace
}  // namespace tanren
