// The plots of a sweep's page as SVG, which the page scales: curves and dimensions. Each trial's
// marks carry its number (data-trial), by which the page's script finds it. Pure functions. Used by
// sweep_page.cpp.
#pragma once

#include "tanren/page/plot_axis.h"
#include "tanren/sweep/page_trials.h"
#include "tanren/sweep/study.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

struct TrialCurve {
  const TrialRecord* record = nullptr;
  Evaluations evaluations;                            // thinned out
  std::optional<std::pair<int64_t, double>> fork_of;  // where its source stood
};

// An SVG and a note. Empty if no evaluation is finite.
std::string curve_plot(const Study& study, const std::vector<TrialCurve>& curves);

// An SVG and a note: the metric of `trials` over that dimension, of those that have it. Empty if
// none has both.
std::string dimension_plot(const Study& study, const std::vector<const TrialRecord*>& trials,
                           size_t dimension);

// The axis of the metric. If the worst value is far worse than the 90 % quantile, the axis ends at
// that quantile, because otherwise one bad trial would leave no room for the others.
struct MetricAxis {
  PlotAxis axis;
  size_t beyond = 0;  // how many of the values
};
// `values`: finite ones, at least one.
MetricAxis metric_axis(std::vector<double> values, bool lower_is_better);
// A sentence that `beyond` things, each called `what`, are beyond the axis. Empty for 0.
std::string beyond_text(size_t beyond, std::string_view what);

// A rectangle with an axis below and one at the left.
struct PlotArea {
  PlotAxis across, up;
  double top = 26, height = 320;

  static constexpr double kLeft = 74, kWidth = 796, kRight = kLeft + kWidth;
  double bottom() const { return top + height; }
  // Positions in the drawing's units. A value beyond an axis is moved to the axis's end.
  double x(double value) const;
  double y(double value) const;

  // Opens an SVG of that id, and draws lines and names of both axes; those of `across` if it has
  // ticks of its own (`has_ticks`).
  std::string open(std::string_view id, std::string_view label, std::string_view across_name,
                   std::string_view up_name, bool has_ticks = true) const;
};

// The states that occur and their colours, as a paragraph.
std::string look_legend(const Study& study, const std::vector<const TrialRecord*>& trials);

}  // namespace tanren
