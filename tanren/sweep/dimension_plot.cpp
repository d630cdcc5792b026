#include "tanren/base/text.h"
#include "tanren/page/report_page.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/sweep_plots.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

constexpr double kNoValueLine = 32, kDimensionTop = 44, kDimensionHeight = 150;

// Choices lie in columns, a trial at a place of its own number within its column.
double column_place(const TrialRecord& record, size_t dimension) {
  constexpr double kGolden = 0.6180339887498949, kColumn = 0.6;
  const double spread = std::fmod(static_cast<double>(record.id) * kGolden, 1.0) - 0.5;
  return record.point[dimension] + kColumn * spread;
}

PlotAxis across_axis(const Space& space, size_t dimension) {
  const DimensionOptions& options = space.dimensions()[dimension];
  if (space.is_range(dimension)) {
    return axis_over(*options.low, *options.high, options.scale == "log", 0.02);
  }
  return {-0.5, static_cast<double>(space.num_choices(dimension)) - 0.5};
}

// Names below the columns. If there are many columns, only every n-th has its name.
std::string column_names(const Space& space, size_t dimension, const PlotArea& area) {
  constexpr size_t kMostNames = 12, kLetters = 120;
  const std::vector<std::string>& values = space.dimensions()[dimension].values;
  const size_t every = (values.size() + kMostNames - 1) / kMostNames;
  const size_t letters = std::max<size_t>(8, kLetters / std::min(values.size(), kMostNames));
  std::string svg;
  for (size_t i = 0; i < values.size(); i += every) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       area.x(static_cast<double>(i)), area.bottom() + 16,
                       escaped(page_text(values[i], letters)));
  }
  return svg;
}

bool is_valued(const TrialRecord& record) { return record.value && std::isfinite(*record.value); }

// A dot; where there is no value, a cross above the area.
std::string trial_mark(const TrialRecord& record, double x, const PlotArea& area) {
  if (!is_valued(record)) {
    return fmt::format(
        "<path d=\"M{:.1f} {}l6 6m0 -6l-6 6\" stroke-width=\"1.4\" "
        "data-trial=\"{}\"/>\n",
        x - 3, kNoValueLine - 3, record.id);
  }
  return fmt::format("<path d=\"M{:.1f} {:.1f}h0\" data-trial=\"{}\"/>\n", x, area.y(*record.value),
                     record.id);
}

}  // namespace

std::string dimension_plot(const Study& study, const std::vector<const TrialRecord*>& trials,
                           size_t dimension) {
  const Space& space = study.space();
  std::vector<const TrialRecord*> drawn;
  std::vector<double> values;
  bool has_failures = false;
  for (const TrialRecord* record : trials) {
    if (record->same_as || std::isnan(record->point[dimension])) continue;
    const bool has_failed = !is_valued(*record) && record->state == TrialState::ended;
    if (!is_valued(*record) && !has_failed) continue;
    drawn.push_back(record);
    if (is_valued(*record)) values.push_back(*record->value);
    has_failures = has_failures || has_failed;
  }
  if (values.empty()) return "";
  const bool is_range = space.is_range(dimension);
  const DimensionOptions& options = space.dimensions()[dimension];
  const std::string key = page_text(options.key), metric = page_text(study.options().metric);
  const MetricAxis up = metric_axis(std::move(values), study.options().lower_is_better);
  const PlotArea area{.across = across_axis(space, dimension),
                      .up = up.axis,
                      .top = kDimensionTop,
                      .height = kDimensionHeight};
  const std::string when = options.when.empty() ? "" : " where " + page_text(options.when, 80);
  std::string svg = area.open(fmt::format("dimension-{}", dimension), metric + " over " + key,
                              key + when, metric, is_range);
  if (!is_range) svg += column_names(space, dimension, area);
  if (has_failures) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">no value</text>\n",
                       PlotArea::kLeft - 6, kNoValueLine + 4);
  }
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (auto look = trial_looks().rbegin(); look != trial_looks().rend(); ++look) {
    std::string marks;
    for (const TrialRecord* record : drawn) {
      if (look_of(state_text(study, *record)).color != look->color) continue;
      const double at = is_range ? record->point[dimension] : column_place(*record, dimension);
      marks += trial_mark(*record, area.x(at), area);
    }
    if (marks.empty()) continue;
    svg += fmt::format(
        "<g fill=\"none\" stroke=\"{}\" stroke-width=\"6\" stroke-linecap=\"round\">\n{}</g>\n",
        look->color, marks);
  }
  const TrialRecord* best = study.best();
  if (best != nullptr && std::find(drawn.begin(), drawn.end(), best) != drawn.end()) {
    const double at = is_range ? best->point[dimension] : column_place(*best, dimension);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6.5\" fill=\"none\" stroke=\"#000\" "
        "stroke-width=\"1.6\"/>\n",
        area.x(at), area.y(*best->value));
  }
  svg += "</svg>\n";
  if (up.beyond > 0) svg += "<p class=\"note\">" + beyond_text(up.beyond, "value") + "</p>\n";
  return svg;
}

}  // namespace tanren
