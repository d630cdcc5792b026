#include "tanren/post_training/report_plot.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/page/plot_axis.h"
#include "tanren/page/report_page.h"
#include "tanren/page/units.h"
#include "tanren/post_training/report_tables.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

// The drawing's units; the page scales it.
constexpr double kPlotLeft = 66, kPlotTop = 26, kPlotWidth = 800, kPlotHeight = 320;
constexpr double kPlotRight = kPlotLeft + kPlotWidth, kPlotBottom = kPlotTop + kPlotHeight;

struct PlotScale {
  double least = 0, most = 1;
  double share(double value) const { return (value - least) / (most - least); }
};

struct PlotFrame {
  PlotScale cost, metric;
  double x(double value) const { return kPlotLeft + kPlotWidth * cost.share(value); }
  double y(double value) const { return kPlotBottom - kPlotHeight * metric.share(value); }
};

// The cost of the points, and its name and unit on the axis.
struct PlotCost {
  bool is_time = false;
  double unit = 1;  // seconds or bytes of one of the axis's units
  std::string name;
};

PlotCost plot_cost(const QuantizeReport& report) {
  int64_t timed = 0;
  double slowest = 0;
  for (const SchemeResult& scheme : report.schemes) {
    if (!scheme.not_measured.empty() || !scheme.seconds_8) continue;
    if (!std::isfinite(scheme.seconds_8->median)) continue;
    ++timed;
    slowest = std::max(slowest, scheme.seconds_8->median);
  }
  if (timed < 2) return {false, 1 << 20, "bytes of the tensors, MiB"};
  const double unit = slowest >= 1 ? 1 : slowest >= 1e-3 ? 1e-3 : 1e-6;
  const char* const name = slowest >= 1 ? "s" : slowest >= 1e-3 ? "ms" : "µs";
  return {true, unit, fmt::format("time of a prediction of 8 samples, {}", name)};
}

std::vector<PlotPoint> plot_points(const QuantizeReport& report, const PlotCost& cost) {
  std::vector<PlotPoint> points;
  for (const SchemeResult& scheme : report.schemes) {
    if (!scheme.not_measured.empty()) continue;
    PlotPoint point{one_line(scheme.name)};
    if (cost.is_time) {
      if (!scheme.seconds_8) continue;
      point.cost = scheme.seconds_8->median / cost.unit;
    } else {
      point.cost = static_cast<double>(scheme.tensor_bytes) / cost.unit;
    }
    if (scheme.name != "fp32") {
      const auto change = metric_change(report, scheme);
      if (!change) continue;
      point.metric = change->mean;
      point.interval = change->interval;
    }
    if (!std::isfinite(point.cost) || point.cost <= 0) continue;
    point.is_written = scheme.is_written;
    if (cost.is_time && scheme.tensor_bytes > 0) {
      point.name += ", " + size_text(scheme.tensor_bytes);
    }
    points.push_back(std::move(point));
  }
  return points;
}

// The metric's change at the tolerance: what it may lose.
std::optional<double> tolerance_level(const QuantizeReport& report) {
  if (!std::isfinite(report.tolerance)) return std::nullopt;
  return report.goal == "min" ? report.tolerance : -report.tolerance;
}

PlotFrame plot_frame(const std::vector<PlotPoint>& points, std::optional<double> tolerance) {
  PlotFrame frame;
  double low = 0, high = 0, dearest = 0;
  const auto take = [&](double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  };
  for (const PlotPoint& point : points) {
    dearest = std::max(dearest, point.cost);
    take(point.metric);
    if (point.interval) {
      take(point.interval->first);
      take(point.interval->second);
    }
  }
  if (tolerance) take(*tolerance);
  if (low == high) {
    low -= 1;
    high += 1;
  }
  const double room = 0.08 * (high - low);
  frame.cost = {0, 1.06 * dearest};
  frame.metric = {low - room, high + room};
  return frame;
}

std::string tick_text(double value, double step) {
  const double rounded = std::abs(value) < step / 2 ? 0 : value;
  return short_text(rounded, 6);
}

std::string plot_axes(const PlotFrame& frame, const PlotCost& cost, const std::string& metric) {
  std::string svg;
  const double rise = tick_step(frame.metric.most - frame.metric.least);
  const auto first = static_cast<int>(std::ceil(frame.metric.least / rise));
  const auto last = static_cast<int>(std::floor(frame.metric.most / rise));
  for (int i = first; i <= last; ++i) {
    const double y = frame.y(i * rise);
    svg += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#ccc\" stroke-width=\".6\"/><text x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kPlotLeft, y, kPlotRight, kPlotLeft - 6, y + 4, tick_text(i * rise, rise));
  }
  const double run = tick_step(frame.cost.most);
  for (int i = 0; i * run <= frame.cost.most; ++i) {
    const double x = frame.x(i * run);
    svg += fmt::format(
        "<path d=\"M{:.1f} {}v4\" stroke=\"#000\"/><text x=\"{:.1f}\" y=\"{}\" "
        "text-anchor=\"middle\">{}</text>\n",
        x, kPlotBottom, x, kPlotBottom + 16, tick_text(i * run, run));
  }
  return svg + fmt::format(
                   "<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#000\"/>"
                   "<text x=\"{0}\" y=\"{4}\">{5}</text>"
                   "<text x=\"{3}\" y=\"{6}\" text-anchor=\"end\">{7}</text>\n",
                   kPlotLeft, kPlotTop, kPlotBottom, kPlotRight, kPlotTop - 10, escaped(metric),
                   kPlotBottom + 34, cost.name);
}

// The best metric that each cost allows.
std::string frontier_line(const std::vector<PlotPoint>& frontier, const PlotFrame& frame) {
  if (frontier.empty()) return "";
  std::string path = fmt::format("M{:.1f} {:.1f}", frame.x(frontier.front().cost),
                                 frame.y(frontier.front().metric));
  for (size_t i = 1; i < frontier.size(); ++i) {
    path += fmt::format("H{:.1f}V{:.1f}", frame.x(frontier[i].cost), frame.y(frontier[i].metric));
  }
  return fmt::format(
      "<path id=\"frontier\" d=\"{}H{}\" fill=\"none\" stroke=\"#000\" stroke-width=\"1.4\"/>\n",
      path, kPlotRight);
}

std::string plot_mark(const PlotPoint& point, const PlotFrame& frame) {
  const double x = frame.x(point.cost), y = frame.y(point.metric);
  std::string svg;
  if (point.interval) {
    const double low = frame.y(point.interval->first), high = frame.y(point.interval->second);
    svg += fmt::format(
        "<path class=\"interval\" d=\"M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {1:.1f}h8M{3:.1f} "
        "{2:.1f}h8\" stroke=\"#555\"/>",
        x, low, high, x - 4);
  }
  return svg + fmt::format(
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\" stroke=\"#000\" "
                   "stroke-width=\"1.4\"/>\n",
                   x, y, point.is_written ? "#000" : "#fff");
}

// The names beside the points, moved down if they would overlap.
std::string plot_names(std::vector<PlotPoint> points, const PlotFrame& frame) {
  constexpr double kLetter = 6.2, kLine = 13, kNearest = kLine - 1, kGap = 10;
  struct Box {
    double left, right, y;
  };
  std::vector<Box> taken;
  std::stable_sort(points.begin(), points.end(),
                   [&](const auto& a, const auto& b) { return a.metric > b.metric; });
  std::string svg;
  for (const PlotPoint& point : points) {
    const double x = frame.x(point.cost);
    const double width = kLetter * static_cast<double>(display_width(point.name));
    const bool is_left = x + kGap + width > kPlotRight;
    Box box{is_left ? x - kGap - width : x + kGap, is_left ? x - kGap : x + kGap + width,
            frame.y(point.metric) - 5};
    const auto is_over = [&](const Box& other) {
      return box.left < other.right && other.left < box.right &&
             std::abs(box.y - other.y) < kNearest;
    };
    for (auto other = taken.begin(); other != taken.end();) {
      if (is_over(*other)) {
        box.y = other->y + kLine;
        other = taken.begin();
      } else {
        ++other;
      }
    }
    taken.push_back(box);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" stroke=\"#fff\" stroke-width=\"3\" "
        "paint-order=\"stroke\">{}</text>\n",
        is_left ? box.right : box.left, box.y, is_left ? "end" : "start", escaped(point.name));
  }
  return svg;
}

}  // namespace

std::vector<PlotPoint> pareto_frontier(std::vector<PlotPoint> points, bool higher) {
  const auto is_better = [&](double a, double b) { return higher ? a > b : a < b; };
  std::stable_sort(points.begin(), points.end(), [&](const PlotPoint& a, const PlotPoint& b) {
    return a.cost != b.cost ? a.cost < b.cost : is_better(a.metric, b.metric);
  });
  std::vector<PlotPoint> frontier;
  for (PlotPoint& point : points) {
    if (frontier.empty() || is_better(point.metric, frontier.back().metric)) {
      frontier.push_back(std::move(point));
    }
  }
  return frontier;
}

std::string pareto_plot(const QuantizeReport& report) {
  const PlotCost cost = plot_cost(report);
  const std::vector<PlotPoint> points = plot_points(report, cost);
  if (points.size() < 2) return "";
  const bool higher = report.goal != "min";
  const auto tolerance = tolerance_level(report);
  const PlotFrame frame = plot_frame(points, tolerance);
  const bool is_share = report.tolerance_unit == "per cent";
  const std::string metric =
      fmt::format("change of {} to fp32's, {}; {} is better", one_line(report.metric),
                  is_share ? "per cent" : "points", higher ? "higher" : "lower");
  std::string svg = fmt::format(
      "<svg id=\"pareto\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"cost of each scheme and "
      "its change of the metric\">\n",
      kPlotRight + 14, kPlotBottom + 42);
  svg += plot_axes(frame, cost, metric);
  if (tolerance) {
    const double y = frame.y(*tolerance);
    svg += fmt::format(
        "<path id=\"tolerance\" d=\"M{} {:.1f}H{}\" stroke=\"#000\" stroke-dasharray=\"6 3\"/>"
        "<text x=\"{}\" y=\"{:.1f}\">tolerance</text>\n",
        kPlotLeft, y, kPlotRight, kPlotLeft + 6, y - 4);
  }
  svg += frontier_line(pareto_frontier(points, higher), frame);
  for (const PlotPoint& point : points) svg += plot_mark(point, frame);
  return svg + plot_names(points, frame) +
         "</svg>\n<p class=\"note\">Line: the best metric that each cost allows. Bars: the 95 % "
         "interval of the change, paired by sample. Black: the scheme that is written.</p>\n";
}

}  // namespace tanren
