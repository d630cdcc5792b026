#include "tanren/sweep/rate_finder.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

constexpr size_t kFinderUpdates = 100;
constexpr double kLowestRate = 1e-8, kHighestRate = 1;
constexpr double kTrendKept = 0.98;   // of the average, at each loss
constexpr double kTrendDiverged = 4;  // times the lowest average
constexpr size_t kFirstLooked = 10;   // updates that no suggestion looks at

// torch.gradient of `values` by `places`, in the same arithmetic: fp32, of second order except at
// the ends. The arithmetic matters because at low rates its rounding decides which slope is the
// steepest. Needs at least two values.
std::vector<float> slopes_of(const std::vector<float>& values, const std::vector<float>& places) {
  const size_t last = values.size() - 1;
  const auto difference = [](const std::vector<float>& of, size_t i) { return of[i + 1] - of[i]; };
  std::vector<float> slopes(values.size());
  slopes[0] = difference(values, 0) / difference(places, 0);
  slopes[last] = difference(values, last - 1) / difference(places, last - 1);
  for (size_t i = 1; i < last; ++i) {
    const float before = difference(places, i - 1), after = difference(places, i);
    const float sum = before + after;
    const float a = -after / (before * sum);
    const float b = (after - before) / (before * after);
    const float c = before / (after * sum);
    slopes[i] = a * values[i - 1] + b * values[i] + c * values[i + 1];
  }
  return slopes;
}

std::optional<size_t> steepest_of(const std::vector<double>& rates,
                                  const std::vector<double>& losses) {
  std::vector<size_t> updates;
  std::vector<float> values, places;
  for (size_t i = kFirstLooked; i + 1 < losses.size(); ++i) {
    const auto value = static_cast<float>(losses[i]);
    if (!std::isfinite(value)) continue;
    updates.push_back(i);
    values.push_back(value);
    places.push_back(static_cast<float>(rates[i]));
  }
  if (values.size() < 2) return std::nullopt;
  const std::vector<float> slopes = slopes_of(values, places);
  const auto lowest = std::min_element(slopes.begin(), slopes.end());
  return updates[static_cast<size_t>(lowest - slopes.begin())];
}

std::optional<size_t> valley_of(const std::vector<double>& losses) {
  constexpr size_t kLast = 5, kLeastFall = 3;
  if (losses.size() <= kFirstLooked + kLast) return std::nullopt;
  const size_t end = losses.size() - (std::isfinite(losses.back()) ? kLast : 1);
  // Of each update: how many losses of the longest fall that ends with it.
  std::vector<size_t> lengths(end, 1);
  size_t longest = kFirstLooked;
  for (size_t i = kFirstLooked; i < end; ++i) {
    for (size_t before = kFirstLooked; before < i; ++before) {
      if (losses[i] < losses[before]) lengths[i] = std::max(lengths[i], lengths[before] + 1);
    }
    if (lengths[i] > lengths[longest]) longest = i;
  }
  const size_t length = lengths[longest];
  if (length < kLeastFall) return std::nullopt;
  // The middle: a third plus a sixth of the fall's length after its first loss, as if it had no
  // gaps.
  return longest - length + length / 3 + length / 6;
}

}  // namespace

std::vector<double> finder_rates() {
  std::vector<double> rates;
  for (size_t i = 0; i < kFinderUpdates; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(kFinderUpdates - 1);
    rates.push_back(kLowestRate * std::pow(kHighestRate / kLowestRate, share));
  }
  return rates;
}

bool LossTrend::add(double loss) {
  average_ = kTrendKept * average_ + (1 - kTrendKept) * loss;
  smoothed_.push_back(average_ / (1 - std::pow(kTrendKept, smoothed_.size() + 1)));
  lightning_.push_back(average_ / (1 - std::pow(kTrendKept, lightning_.size() + 2)));
  const bool is_first = lightning_.size() == 1;
  const double now = lightning_.back();
  const bool has_diverged = !is_first && lowest_ > 0 && now > kTrendDiverged * lowest_;
  if (is_first || now < lowest_) lowest_ = now;
  return std::isfinite(average_) && !has_diverged;
}

RateSuggestion suggest_rates(const std::vector<double>& rates, const LossTrend& trend) {
  return {.steepest = steepest_of(rates, trend.lightning()), .valley = valley_of(trend.smoothed())};
}

}  // namespace tanren
