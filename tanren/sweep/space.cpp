#include "tanren/sweep/space.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/space_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tanren {

namespace {

// The whole text as a number; empty if it is none.
std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional<double>(value) : std::nullopt;
}

bool is_log(const DimensionOptions& dimension) { return dimension.scale == "log"; }

// The ends of a range as samplers see them.
std::pair<double, double> bounds_of(const DimensionOptions& dimension) {
  if (!dimension.values.empty()) return {0, 0};
  const double room = dimension.whole ? 0.5 : 0;
  const double low = *dimension.low - room, high = *dimension.high + room;
  return is_log(dimension) ? std::pair(std::log(low), std::log(high)) : std::pair(low, high);
}

int64_t choice_of(const DimensionOptions& dimension, const std::string& value) {
  const auto found = std::find(dimension.values.begin(), dimension.values.end(), value);
  return found == dimension.values.end() ? -1 : found - dimension.values.begin();
}

// Whether a number may be a coordinate of the range.
bool is_in(const DimensionOptions& dimension, double value) {
  const bool fits = value >= *dimension.low && value <= *dimension.high;
  return fits && (!dimension.whole || std::floor(value) == value);
}

}  // namespace

Space::Space(std::vector<DimensionOptions> dimensions) : dimensions_(std::move(dimensions)) {
  std::vector<std::string> lines;
  for (const auto& [key, what] : space_problems(dimensions_)) {
    lines.push_back("[sweep] " + (key.empty() ? "" : key + ": ") + what);
  }
  if (!lines.empty()) throw ConfigError(join(lines, "\n"));
  for (const DimensionOptions& dimension : dimensions_) {
    bounds_.push_back(bounds_of(dimension));
    const auto condition = condition_of(dimension.when);
    if (condition) {
      const size_t other = index_of(condition->first);
      conditions_.push_back({other, choice_of(dimensions_[other], condition->second)});
    } else {
      conditions_.push_back({size(), 0});
    }
  }
  std::vector<bool> is_placed(size(), false);
  while (order_.size() < size()) {  // ends, for there is no circle
    for (size_t i = 0; i < size(); ++i) {
      const size_t other = conditions_[i].dimension;
      if (is_placed[i] || (other < size() && !is_placed[other])) continue;
      is_placed[i] = true;
      order_.push_back(i);
    }
  }
  lay_grid();
}

size_t Space::index_of(const std::string& key) const {
  const auto found = std::find_if(dimensions_.begin(), dimensions_.end(),
                                  [&](const auto& dimension) { return dimension.key == key; });
  return static_cast<size_t>(found - dimensions_.begin());
}

int64_t Space::num_choices(size_t dimension) const {
  return std::ssize(dimensions_[dimension].values);
}

double Space::scaled(size_t dimension, double value) const {
  return is_log(dimensions_[dimension]) ? std::log(value) : value;
}

double Space::unscaled(size_t dimension, double scaled) const {
  const DimensionOptions& one = dimensions_[dimension];
  double value = is_log(one) ? std::exp(scaled) : scaled;
  if (one.whole) value = std::floor(value + 0.5);
  return std::clamp(value, *one.low, *one.high);
}

double Space::value_at(size_t dimension, double share) const {
  if (!is_range(dimension)) {
    const double choices = static_cast<double>(num_choices(dimension));
    return std::min(std::floor(share * choices), choices - 1);
  }
  const auto& [low, high] = bounds_[dimension];
  return unscaled(dimension, low + share * (high - low));
}

SpacePoint Space::point(const std::function<double(size_t)>& value) const {
  SpacePoint point(size(), kNotThere);
  for (const size_t dimension : order_) {
    if (has(point, dimension)) point[dimension] = value(dimension);
  }
  return point;
}

bool Space::has(const SpacePoint& point, size_t dimension) const {
  const Condition& condition = conditions_[dimension];
  if (condition.dimension == size()) return true;
  return point[condition.dimension] == static_cast<double>(condition.choice);  // NaN: false
}

TrialValues Space::values_of(const SpacePoint& point) const {
  TrialValues values;
  for (size_t i = 0; i < size(); ++i) {
    if (std::isnan(point[i])) continue;
    const DimensionOptions& one = dimensions_[i];
    std::string text = !one.values.empty() ? one.values[static_cast<size_t>(point[i])]
                       : one.whole         ? to_text(static_cast<int64_t>(point[i]))
                                           : to_text(point[i]);
    values.emplace_back(one.key, std::move(text));
  }
  return values;
}

SpacePoint Space::point_of(const TrialValues& values) const {
  SpacePoint point(size(), kNotThere);
  for (const auto& [key, text] : values) {
    const size_t dimension = index_of(key);
    if (dimension == size()) throw InputError("[sweep] " + key + " is no dimension of the space");
    const DimensionOptions& one = dimensions_[dimension];
    if (is_range(dimension)) {
      const auto number = number_in(text);
      if (number && is_in(one, *number)) point[dimension] = *number;
    } else if (const int64_t choice = choice_of(one, text); choice >= 0) {
      point[dimension] = static_cast<double>(choice);
    }
    if (std::isnan(point[dimension])) {
      throw InputError("[sweep] " + key + "=" + text + " is not in the space");
    }
  }
  for (size_t i = 0; i < size(); ++i) {
    if (has(point, i) == !std::isnan(point[i])) continue;
    throw InputError("[sweep] a trial " + std::string(has(point, i) ? "lacks " : "may not have ") +
                     dimensions_[i].key);
  }
  return point;
}

SpacePoint Space::perturbed(const SpacePoint& point,
                            const std::function<double(size_t, int64_t)>& share) const {
  constexpr double kDrawnAnew = 0.25, kDown = 0.8, kUp = 1.2;
  return this->point([&](size_t dimension) {
    const double before = point[dimension];
    // A changed choice can bring a dimension that the point did not have.
    if (std::isnan(before) || share(dimension, 0) < kDrawnAnew) {
      return value_at(dimension, share(dimension, 1));
    }
    const bool goes_up = share(dimension, 2) < 0.5;
    const DimensionOptions& one = dimensions_[dimension];
    if (!is_range(dimension)) {
      const double last = static_cast<double>(num_choices(dimension) - 1);
      return std::clamp(before + (goes_up ? 1 : -1), 0.0, last);
    }
    double value = before * (goes_up ? kUp : kDown);
    if (one.whole) value = std::floor(value + 0.5);
    return std::clamp(value, *one.low, *one.high);
  });
}

}  // namespace tanren
