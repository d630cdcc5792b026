// The picture of a quantisation's report: what each scheme costs against what it changes.
#pragma once

#include "tanren/post_training/quantize_report.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct PlotPoint {
  std::string name;
  double cost = 0;    // the less the better
  double metric = 0;  // its change to fp32's
  std::optional<std::pair<double, double>> interval;
  bool is_written = false;
};

// The points that no other equals or beats in both cost and metric, from the cheapest to the best.
// `higher`: the higher a metric the better.
std::vector<PlotPoint> pareto_frontier(std::vector<PlotPoint> points, bool higher);

// An SVG and a note; empty if fewer than two points can be drawn. The x axis is the time of 8
// samples if two schemes or more were timed, else the bytes. The y axis is the change of the
// metric.
std::string pareto_plot(const QuantizeReport& report);

}  // namespace tanren
