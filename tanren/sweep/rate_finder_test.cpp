#include "tanren/sweep/rate_finder.h"

#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/testing.h"
#include "tanren/sweep/rate_report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// JSON has no NaN and infinity; the fixture has texts in their place.
std::vector<double> numbers_of(const nlohmann::json& json) {
  std::vector<double> numbers;
  for (const auto& entry : json) {
    const bool is_infinite = entry.is_string() && entry == "inf";
    numbers.push_back(is_infinite         ? std::numeric_limits<double>::infinity()
                      : entry.is_string() ? kNotANumber
                                          : entry.get<double>());
  }
  return numbers;
}

void expect_alike(const std::vector<double>& ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(std::isfinite(ours[i]), std::isfinite(theirs[i])) << i;
    if (!std::isfinite(ours[i])) continue;
    EXPECT_NEAR(ours[i], theirs[i], 1e-12 * std::abs(theirs[i])) << i;
  }
}

LossTrend trend_of(const std::vector<double>& losses) {
  LossTrend trend;
  for (const double loss : losses) trend.add(loss);
  return trend;
}

// tests/fixtures/make/rate_finder_fixture.py: Lightning's and fastai's own code on the same losses.
TEST(RateFinder, ends_smooths_and_suggests_as_lightning_and_fastai_do) {
  const nlohmann::json fixture =
      parse_json(read_file(TANREN_SOURCE_DIR "/tests/fixtures/rate_finder.json"));
  EXPECT_GE(fixture.at("cases").size(), 8u);
  for (const auto& known : fixture.at("cases")) {
    SCOPED_TRACE(known.at("name").get<std::string>());
    const std::vector<double> rates = numbers_of(known.at("rates"));
    const std::vector<double> losses = numbers_of(known.at("losses"));
    LossTrend trend;
    for (size_t i = 0; i < losses.size(); ++i) {
      const bool goes_on = trend.add(losses[i]);
      EXPECT_EQ(goes_on, i + 1 < losses.size() || losses.size() == 100) << i;
    }
    expect_alike(trend.lightning(), numbers_of(known.at("lightning")));
    expect_alike(trend.smoothed(), numbers_of(known.at("smoothed")));
    const RateSuggestion suggestion = suggest_rates(rates, trend);
    EXPECT_EQ(suggestion.steepest, known.at("steepest").get<size_t>());
    EXPECT_EQ(suggestion.valley, known.at("valley").get<size_t>());
  }
}

TEST(RateFinder, raises_the_rate_by_one_factor_from_1e_8_to_1_in_100_updates) {
  const std::vector<double> rates = finder_rates();
  ASSERT_EQ(rates.size(), 100u);
  EXPECT_DOUBLE_EQ(rates.front(), 1e-8);
  EXPECT_DOUBLE_EQ(rates.back(), 1);
  for (size_t i = 1; i < rates.size(); ++i) {
    EXPECT_NEAR(rates[i] / rates[i - 1], std::pow(10, 8.0 / 99), 1e-12);
  }
}

TEST(RateFinder, suggests_nothing_of_losses_that_are_too_few_or_rise) {
  std::vector<double> falling, rising;
  for (int i = 0; i < 12; ++i) falling.push_back(3 - 0.1 * i);
  const RateSuggestion few = suggest_rates(finder_rates(), trend_of(falling));
  EXPECT_FALSE(few.steepest);
  EXPECT_FALSE(few.valley);
  falling.push_back(1.7);
  EXPECT_TRUE(suggest_rates(finder_rates(), trend_of(falling)).steepest);
  for (int i = 0; i < 40; ++i) rising.push_back(1 + 0.01 * i);
  EXPECT_FALSE(suggest_rates(finder_rates(), trend_of(rising)).valley);
  EXPECT_FALSE(suggest_rates({1e-8}, trend_of({kNotANumber})).steepest);
}

TEST(RateFinder, takes_no_loss_below_0_for_a_divergence) {
  LossTrend trend;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(trend.add(-1 - 0.1 * i)) << i;
}

RateReport report_of(const std::vector<double>& losses) {
  RateReport report;
  report.name = "digits <1>";
  report.subject = "mlp, adamw, 32 samples an update";
  report.begun = 45;
  report.rates = finder_rates();
  report.rates.resize(losses.size());
  report.losses = losses;
  report.trend = trend_of(losses);
  report.suggestion = suggest_rates(report.rates, report.trend);
  return report;
}

TEST(RateReport, has_lines_of_toml_of_which_one_is_no_comment) {
  std::vector<double> losses;
  for (int i = 0; i < 80; ++i) losses.push_back(i < 40 ? 2.3 : 2.3 - 0.05 * (i - 40));
  losses.push_back(kNotANumber);
  RateReport report = report_of(losses);
  report.end = "the loss is not finite";
  ASSERT_TRUE(report.suggestion.valley);
  ASSERT_TRUE(report.suggestion.steepest);
  const std::string text = rate_report_text(report);
  TANREN_EXPECT_CONTAINS(
      text, "learning rate of digits <1> (mlp, adamw, 32 samples an update), from step 45\n");
  TANREN_EXPECT_CONTAINS(text, "81 updates, up to the rate ");
  TANREN_EXPECT_CONTAINS(text, ": the loss is not finite\n[optimizer]\nlearning_rate = ");
  TANREN_EXPECT_CONTAINS(
      text, "  # valley: the middle of the longest fall, fastai's\n# learning_rate = ");
  TANREN_EXPECT_CONTAINS(text, "  # steepest: the most fall by rate, Lightning's\n");
  const nlohmann::json json = parse_json(rate_report_json(report));
  EXPECT_EQ(json.at("key"), "optimizer.learning_rate");
  EXPECT_EQ(json.at("valley"), report.rates[*report.suggestion.valley]);
  EXPECT_EQ(json.at("steepest"), report.rates[*report.suggestion.steepest]);
  EXPECT_EQ(json.at("rates").size(), 81u);
  EXPECT_EQ(json.at("losses")[79], losses[79]);
  EXPECT_TRUE(json.at("losses")[80].is_null());
  EXPECT_TRUE(json.at("smoothed")[80].is_null());
  const std::string page = rate_report_html(report);
  TANREN_EXPECT_CONTAINS(page, "<h1>Learning rate of digits &lt;1&gt;</h1>");
  const size_t plot = page.find("<svg id=\"rate-plot\"");
  ASSERT_NE(plot, std::string::npos);
  const std::string drawing = page.substr(plot, page.find("</svg>") - plot);
  EXPECT_EQ(drawing.find("nan"), std::string::npos) << drawing;
  TANREN_EXPECT_CONTAINS(drawing, ">valley ");
  TANREN_EXPECT_CONTAINS(drawing, ">steepest ");
  report.table = "objectives.own.optimizer";
  TANREN_EXPECT_CONTAINS(rate_report_text(report),
                         "\n[objectives.own.optimizer]\nlearning_rate = ");
  TANREN_EXPECT_CONTAINS(rate_report_html(report),
                         "<pre>[objectives.own.optimizer]\nlearning_rate = ");
}

TEST(RateReport, of_losses_that_tell_nothing_says_so) {
  RateReport report = report_of({kNotANumber});
  report.begun = 0;
  const std::string text = rate_report_text(report);
  TANREN_EXPECT_CONTAINS(text, ", from the beginning\n");
  TANREN_EXPECT_CONTAINS(text, "no rate: the losses are too few, or do not fall\n");
  EXPECT_TRUE(parse_json(rate_report_json(report)).at("valley").is_null());
  TANREN_EXPECT_CONTAINS(rate_report_html(report), "rate-plot");
}

}  // namespace
}  // namespace tanren
