#include "tanren/page/plot_axis.h"

#include "tanren/base/text.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

constexpr int kMostTicks = 10;

// Multiples of a step, with as many digits as tell them apart.
std::vector<PlotTick> even_ticks(double low, double high) {
  const double step = tick_step(high - low);
  const double largest = std::max(std::abs(low), std::abs(high));
  const int digits = std::clamp(static_cast<int>(std::ceil(std::log10(largest / step))) + 1, 6, 15);
  std::vector<PlotTick> ticks;
  const double first = std::ceil(low / step);
  for (int i = 0; i < kMostTicks && (first + i) * step <= high; ++i) {
    const double value = first + i == 0 ? 0 : (first + i) * step;
    ticks.push_back({value, short_text(value, digits)});
  }
  return ticks;
}

// `factors` times each power of ten between the ends.
std::vector<PlotTick> power_ticks(double low, double high, const std::vector<double>& factors) {
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::floor(std::log10(high)));
  const int every = (last - first) / kMostTicks + 1;
  constexpr double kRounding = 1e-12;
  std::vector<PlotTick> ticks;
  for (int power = first; power <= last; ++power) {
    if (power % every != 0) continue;
    for (const double factor : factors) {
      const double value = factor * std::pow(10, power);
      const bool is_inside = value >= low * (1 - kRounding) && value <= high * (1 + kRounding);
      if (is_inside) ticks.push_back({value, short_text(value, 6)});
    }
  }
  return ticks;
}

}  // namespace

double tick_step(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (length / (power * factor) <= 6) return power * factor;
  }
  return 10 * power;
}

double PlotAxis::share(double value) const {
  // high / low may be above the largest double.
  if (is_log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value - low) / (high - low);
}

std::vector<PlotTick> PlotAxis::ticks() const {
  if (!is_log) return even_ticks(low, high);
  const std::vector<std::vector<double>> ways = {{1}, {1, 2, 5}};
  for (const std::vector<double>& factors : ways) {
    std::vector<PlotTick> ticks = power_ticks(low, high, factors);
    if (ticks.size() >= 3 && ticks.size() <= kMostTicks) return ticks;
  }
  return even_ticks(low, high);
}

PlotAxis axis_over(double low, double high, bool is_log, double room) {
  constexpr double kNearest = 1e-12;
  if (is_log) {
    constexpr double kLargest = 1e280;
    const double from = std::clamp(low, 1 / kLargest, kLargest);
    const double to = std::clamp(high, 1 / kLargest, kLargest);
    const double length = std::log(to) - std::log(from);
    const double factor = length < kNearest ? 2 : std::exp(room * length);
    return {from / factor, to * factor, true};
  }
  constexpr double kLargest = 1e300, kSmallest = 1e-290;
  low = std::clamp(low, -kLargest, kLargest);
  high = std::clamp(high, -kLargest, kLargest);
  const double largest = std::max(std::abs(low), std::abs(high));
  double more = room * (high - low);
  if (high - low <= kNearest * largest || largest < kSmallest) {
    more = largest < kSmallest ? 1 : largest / 20;
  }
  return {low - more, high + more, false};
}

}  // namespace tanren
