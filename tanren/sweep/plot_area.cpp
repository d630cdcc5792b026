#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/page/report_page.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/sweep_plots.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tanren {

namespace {

// The value's position on the axis, from 0 to 1. NaN is at 0.
double share_inside(const PlotAxis& axis, double value) {
  const double share = axis.share(value);
  return std::isnan(share) ? 0 : std::clamp(share, 0.0, 1.0);
}

}  // namespace

double PlotArea::x(double value) const { return kLeft + kWidth * share_inside(across, value); }
double PlotArea::y(double value) const { return bottom() - height * share_inside(up, value); }

std::string PlotArea::open(std::string_view id, std::string_view label,
                           std::string_view across_name, std::string_view up_name,
                           bool has_ticks) const {
  std::string svg =
      fmt::format("<svg id=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", id,
                  kRight + 14, bottom() + 42, escaped(label));
  for (const PlotTick& tick : up.ticks()) {
    svg += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#ccc\" stroke-width=\".6\"/><text x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y(tick.value), kRight, kLeft - 6, y(tick.value) + 4, tick.text);
  }
  for (const PlotTick& tick : has_ticks ? across.ticks() : std::vector<PlotTick>()) {
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1}v4\" stroke=\"#000\"/><text x=\"{0:.1f}\" y=\"{2}\" "
        "text-anchor=\"middle\">{3}</text>\n",
        x(tick.value), bottom(), bottom() + 16, tick.text);
  }
  return svg + fmt::format(
                   "<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#000\"/>"
                   "<text x=\"{0}\" y=\"14\">{4}</text>"
                   "<text x=\"{3}\" y=\"{5}\" text-anchor=\"end\">{6}</text>\n",
                   kLeft, top, bottom(), kRight, escaped(up_name), bottom() + 34,
                   escaped(across_name));
}

MetricAxis metric_axis(std::vector<double> values, bool lower_is_better) {
  constexpr double kFar = 5;         // times the distance from the best value to the 90 % quantile
  constexpr double kManyTimes = 30;  // least ratio of values for a logarithmic axis
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const bool is_log = *least > 0 && *most / *least > kManyTimes;
  const auto scaled = [&](double value) { return is_log ? std::log(value) : value; };
  std::sort(values.begin(), values.end(),
            [&](double a, double b) { return lower_is_better ? a < b : a > b; });
  const auto way = [&](double value) { return std::abs(scaled(value) - scaled(values.front())); };
  const double usual = values[(values.size() - 1) * 9 / 10];
  MetricAxis result;
  double worst = values.back();
  if (way(usual) > 0 && way(worst) > kFar * way(usual)) {
    worst = usual;
    result.beyond = static_cast<size_t>(std::count_if(
        values.begin(), values.end(), [&](double value) { return way(value) > way(usual); }));
  }
  result.axis = axis_over(std::min(values.front(), worst), std::max(values.front(), worst), is_log);
  return result;
}

std::string beyond_text(size_t beyond, std::string_view what) {
  if (beyond == 0) return "";
  if (beyond == 1) return fmt::format("1 {} lies beyond the axis and is drawn at its end.", what);
  return fmt::format("{} {}s lie beyond the axis and are drawn at its end.", beyond, what);
}

std::string look_legend(const Study& study, const std::vector<const TrialRecord*>& trials) {
  std::set<std::string> states;
  for (const TrialRecord* record : trials) states.insert(state_text(study, *record));
  std::string html;
  for (const TrialLook& look : trial_looks()) {
    std::vector<std::string> names;
    for (const std::string& state : states) {
      if (look_of(state).color == look.color) names.push_back(state);
    }
    if (names.empty()) continue;
    html += fmt::format(
        "<svg viewBox=\"0 0 34 10\" style=\"width:34px;display:inline;margin:0 4px 0 "
        "12px\"><path d=\"M1 5H33\" stroke=\"{}\" stroke-width=\"3\" "
        "stroke-dasharray=\"{}\"/></svg>{}",
        look.color, look.dashes, escaped(join(names)));
  }
  return html.empty() ? "" : "<p>" + html + "</p>\n";
}

}  // namespace tanren
