#include "tanren/sweep/rate_report.h"

#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/page/report_page.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

namespace tanren {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kRateDigits = 3;

std::string rate_subject(const RateReport& report) {
  const std::string begun =
      report.begun > 0 ? fmt::format("step {}", report.begun) : std::string("the beginning");
  return fmt::format("learning rate of {} ({}), from {}", report.name, report.subject, begun);
}

std::string rate_end(const RateReport& report) {
  if (report.rates.empty()) return "no updates";
  const std::string reached = fmt::format("{} updates, up to the rate {}", report.rates.size(),
                                          short_text(report.rates.back(), kRateDigits));
  return report.end.empty() ? reached : reached + ": " + report.end;
}

struct RateName {
  const char* name;
  const char* what;
  std::optional<size_t> update;
};

// Sorted by the influence of noise, the least first.
std::vector<RateName> named_rates(const RateReport& report) {
  return {{"valley", "the middle of the longest fall, fastai's", report.suggestion.valley},
          {"steepest", "the most fall by rate, Lightning's", report.suggestion.steepest}};
}

// The table and its lines. Empty without a suggestion.
std::string rate_toml(const RateReport& report) {
  std::string toml;
  for (const RateName& one : named_rates(report)) {
    if (!one.update) continue;
    const std::string key = toml.empty() ? "learning_rate = " : "# learning_rate = ";
    const std::string value = key + short_text(report.rates[*one.update], kRateDigits);
    if (toml.empty()) toml = "[" + report.table + "]\n";
    toml += fmt::format("{}  # {}: {}\n", padded(value, 26), one.name, one.what);
  }
  return toml;
}

// The drawing's units; the page scales it.
constexpr double kRateLeft = 62, kRateTop = 24, kRateWidth = 820, kRateHeight = 330,
                 kRateBottom = kRateTop + kRateHeight;

// The place of a rate and of a loss in the drawing.
class RateScales {
 public:
  explicit RateScales(const RateReport& report) {
    const auto [first, last] = std::minmax_element(report.rates.begin(), report.rates.end());
    constexpr double kRounding = 1e-9;
    first_ = std::floor(std::log10(*first) + kRounding);
    last_ = std::max(std::ceil(std::log10(*last) - kRounding), first_ + 1);
    // Single losses may be far above the average.
    std::vector<double> smoothed;
    for (const double loss : report.trend.smoothed()) {
      if (std::isfinite(loss)) smoothed.push_back(loss);
    }
    if (smoothed.empty()) return;
    const auto [low, high] = std::minmax_element(smoothed.begin(), smoothed.end());
    const double room = std::max(*high - *low, 1e-9 * std::abs(*high)) * 0.08;
    low_ = *low - room;
    high_ = *high > *low ? *high + room : *low + 1;
  }

  double x(double rate) const {
    return kRateLeft + kRateWidth * (std::log10(rate) - first_) / (last_ - first_);
  }
  double y(double loss) const { return kRateBottom - kRateHeight * (loss - low_) / (high_ - low_); }
  bool holds(double loss) const { return loss >= low_ && loss <= high_; }

  std::string grid() const {
    constexpr int kLevels = 5;
    std::string svg;
    for (int at = static_cast<int>(first_); at <= static_cast<int>(last_); ++at) {
      const double power = std::pow(10, at);
      svg += fmt::format(
          "<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#ccc\" stroke-width=\".6\"/><text x=\"{0:.1f}\" "
          "y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
          x(power), kRateTop, kRateBottom, kRateBottom + 16, power);
    }
    for (int i = 0; i <= kLevels; ++i) {
      const double loss = low_ + (high_ - low_) * i / kLevels;
      svg += fmt::format(
          "<path d=\"M{} {:.1f}H{}\" stroke=\"#ccc\" stroke-width=\".6\"/><text x=\"{}\" "
          "y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          kRateLeft, y(loss), kRateLeft + kRateWidth, kRateLeft - 6, y(loss) + 4,
          short_text(loss, kRateDigits));
    }
    return svg;
  }

 private:
  double first_ = 0, last_ = 1;  // powers of ten
  double low_ = 0, high_ = 1;
};

std::string rate_plot(const RateReport& report) {
  if (report.rates.empty()) return "";
  const RateScales scales(report);
  std::string svg = fmt::format(
      "<svg id=\"rate-plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"loss against learning "
      "rate\">\n",
      kRateLeft + kRateWidth + 10, kRateBottom + 44);
  svg += scales.grid();
  std::string way;
  const std::vector<double>& smoothed = report.trend.smoothed();
  for (size_t i = 0; i < report.rates.size(); ++i) {
    const double x = scales.x(report.rates[i]);
    if (scales.holds(report.losses[i])) {
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"#999\"/>", x,
                         scales.y(report.losses[i]));
    }
    if (!std::isfinite(smoothed[i])) continue;
    way += fmt::format("{}{:.1f} {:.1f}", way.empty() ? "M" : "L", x, scales.y(smoothed[i]));
  }
  svg += "\n<path d=\"" + way + "\" fill=\"none\" stroke=\"#000\" stroke-width=\"1.6\"/>\n";
  double level = kRateTop + 12;  // of the names, one below the other
  for (const RateName& one : named_rates(report)) {
    if (!one.update) continue;
    const double rate = report.rates[*one.update];
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#000\" stroke-dasharray=\"4 3\"/><text "
        "x=\"{3:.1f}\" y=\"{4}\">{5} {6}</text>\n",
        scales.x(rate), kRateTop, kRateBottom, scales.x(rate) + 4, level, one.name,
        short_text(rate, kRateDigits));
    level += 14;
  }
  return svg + fmt::format(
                   "<text x=\"{}\" y=\"{}\">loss</text><text x=\"{}\" y=\"{}\" "
                   "text-anchor=\"end\">learning rate</text>\n</svg>\n",
                   kRateLeft, kRateTop - 8, kRateLeft + kRateWidth, kRateBottom + 34);
}

Json suggestion_json(const RateReport& report, const std::optional<size_t>& update) {
  return update ? Json(report.rates[*update]) : Json();
}

}  // namespace

std::string rate_report_text(const RateReport& report) {
  const std::string text = rate_subject(report) + "\n" + rate_end(report) + "\n";
  const std::string toml = rate_toml(report);
  return text + (toml.empty() ? "no rate: the losses are too few, or do not fall\n" : toml);
}

std::string rate_report_json(const RateReport& report) {
  const Json json = {{"name", report.name},
                     {"key", report.table + ".learning_rate"},
                     {"subject", report.subject},
                     {"begun", report.begun},
                     {"end", report.end},
                     {"steepest", suggestion_json(report, report.suggestion.steepest)},
                     {"valley", suggestion_json(report, report.suggestion.valley)},
                     {"rates", report.rates},
                     {"losses", report.losses},
                     {"smoothed", report.trend.smoothed()},
                     {"lightning", report.trend.lightning()}};
  return json_text(json) + "\n";
}

std::string rate_report_html(const RateReport& report) {
  std::string html = page_head("Learning rate of " + report.name);
  html += "<h1>Learning rate of " + escaped(report.name) + "</h1>\n<p class=\"subject\">" +
          escaped(rate_subject(report)) + "<br>\n" + escaped(rate_end(report)) + "</p>\n";
  html += rate_plot(report);
  html +=
      "<p class=\"note\">Points: the loss of each update. Line: their moving average, in which the "
      "newest one counts 2 %.</p>\n";
  return html + "<pre>" + escaped(rate_toml(report)) + "</pre>\n" + page_end();
}

}  // namespace tanren
