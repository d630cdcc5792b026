// PlotAxis: where a number lies on an axis of a plot, and the numbers that are written along it.
// Pure functions. Called by the plots of reports.
#pragma once

#include <string>
#include <vector>

namespace tanren {

// 1, 2 or 5 times a power of ten, so that about five fit into `length`, which must be above 0.
double tick_step(double length);

struct PlotTick {
  double value = 0;
  std::string text;
};

struct PlotAxis {
  double low = 0, high = 1;  // its ends, low < high; both above 0 if it is logarithmic
  bool is_log = false;

  // 0 at the low end, 1 at the high end. On a logarithmic axis `value` must be above 0.
  double share(double value) const;
  // At most ten, in rising order, between the ends.
  std::vector<PlotTick> ticks() const;
};

// The axis from `low` to `high`, extended at each end by the share `room` of its length. Both must
// be finite and, on a logarithmic axis, above 0. Equal ends are moved apart.
PlotAxis axis_over(double low, double high, bool is_log = false, double room = 0.04);

}  // namespace tanren
