#include "tanren/base/text.h"
#include "tanren/page/report_page.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/sweep_plots.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

// The curve's points, also where a fork began.
Evaluations drawn_points(const TrialCurve& curve) {
  Evaluations points;
  if (curve.fork_of) points.push_back(*curve.fork_of);
  points.insert(points.end(), curve.evaluations.begin(), curve.evaluations.end());
  return points;
}

// Lines between neighbours; a value that is not finite parts them, and a lone point is a dot.
std::string curve_path(const Evaluations& points, const PlotArea& area) {
  std::string path;
  const auto is_finite = [&](size_t i) { return std::isfinite(points[i].second); };
  for (size_t i = 0; i < points.size(); ++i) {
    if (!is_finite(i)) continue;
    const bool begins = i == 0 || !is_finite(i - 1);
    const bool is_alone = begins && (i + 1 == points.size() || !is_finite(i + 1));
    path += fmt::format("{}{:.1f} {:.1f}{}", begins ? 'M' : 'L',
                        area.x(static_cast<double>(points[i].first)), area.y(points[i].second),
                        is_alone ? "h0" : "");
  }
  return path;
}

std::string trial_path(const TrialCurve& curve, const PlotArea& area) {
  return fmt::format("<path d=\"{}\" data-trial=\"{}\"/>\n", curve_path(drawn_points(curve), area),
                     curve.record->id);
}

}  // namespace

std::string curve_plot(const Study& study, const std::vector<TrialCurve>& curves) {
  const std::string metric = page_text(study.options().metric);
  const bool lower = study.options().lower_is_better;
  std::vector<double> values;
  int64_t last = 0;
  std::vector<const TrialRecord*> trials;
  for (const TrialCurve& curve : curves) {
    const size_t before = values.size();
    for (const auto& [step, value] : drawn_points(curve)) {
      if (!std::isfinite(value)) continue;
      values.push_back(value);
      last = std::max(last, step);
    }
    if (values.size() > before) trials.push_back(curve.record);
  }
  if (values.empty()) return "";
  const MetricAxis up = metric_axis(std::move(values), lower);
  const PlotArea area{.across = axis_over(0, static_cast<double>(last), false, 0), .up = up.axis};
  std::string svg = area.open("curves", metric + " of each trial over its steps", "step",
                              metric + (lower ? ", lower is better" : ", higher is better"));
  const TrialRecord* best = study.best();
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (auto look = trial_looks().rbegin(); look != trial_looks().rend(); ++look) {
    std::string paths;
    for (const TrialCurve& curve : curves) {
      const bool is_of_look = look_of(state_text(study, *curve.record)).color == look->color;
      if (is_of_look && curve.record != best) paths += trial_path(curve, area);
    }
    if (paths.empty()) continue;
    svg += fmt::format(
        "<g fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\" stroke-linecap=\"round\" "
        "stroke-dasharray=\"{}\">\n{}</g>\n",
        look->color, look->dashes, paths);
  }
  for (const TrialCurve& curve : curves) {
    if (curve.record != best) continue;
    svg +=
        "<g id=\"best-curve\" fill=\"none\" stroke=\"#000\" stroke-width=\"2.6\" "
        "stroke-linecap=\"round\">\n" +
        trial_path(curve, area) + "</g>\n";
  }
  return svg + "</svg>\n" + look_legend(study, trials) +
         "<p class=\"note\">Black: the best trial. A fork begins where its source stood. " +
         beyond_text(up.beyond, "evaluation") + "</p>\n";
}

}  // namespace tanren
