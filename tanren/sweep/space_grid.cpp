// The grid of a Space. Dimensions form trees: under each choice of a dimension hang those whose
// condition it meets. So sizes multiply along independent dimensions and add up over choices, and
// the point of a number is found without the points before it.
#include "tanren/base/error.h"
#include "tanren/sweep/space.h"

#include <algorithm>

namespace tanren {

namespace {

constexpr int64_t kMostGridPoints = int64_t{1} << 40;

// Both lie in [1, kMostGridPoints].
int64_t capped_product(int64_t a, int64_t b) {
  return a > kMostGridPoints / b ? kMostGridPoints : a * b;
}

}  // namespace

void Space::lay_grid() {
  grid_.assign(size(), {});
  for (size_t at = order_.size(); at-- > 0;) {  // each before the one that its condition names
    const size_t i = order_[at];
    Axis& axis = grid_[i];
    if (is_range(i)) {
      axis.numbers = numbers_of(i);
      axis.size = std::ssize(axis.numbers);
      continue;
    }
    axis.sizes.assign(static_cast<size_t>(num_choices(i)), 1);
    for (size_t other = 0; other < size(); ++other) {
      if (conditions_[other].dimension != i) continue;
      int64_t& under = axis.sizes[static_cast<size_t>(conditions_[other].choice)];
      under = capped_product(under, std::max<int64_t>(grid_[other].size, 1));
    }
    for (const int64_t under : axis.sizes) axis.size = std::min(axis.size + under, kMostGridPoints);
  }
}

// The numbers of a range in the grid, rising. Empty without points.
std::vector<double> Space::numbers_of(size_t dimension) const {
  const DimensionOptions& one = dimensions_[dimension];
  std::vector<double> numbers;
  if (!one.points) return numbers;
  const double low = scaled(dimension, *one.low), high = scaled(dimension, *one.high);
  for (int64_t i = 0; i < *one.points; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(*one.points - 1);
    const double number = i + 1 == *one.points ? *one.high
                          : i == 0             ? *one.low
                                               : unscaled(dimension, low + share * (high - low));
    if (numbers.empty() || number > numbers.back()) numbers.push_back(number);
  }
  return numbers;
}

int64_t Space::grid_size() const {
  int64_t points = 1;
  for (size_t i = 0; i < size(); ++i) {
    if (grid_[i].size == 0) {
      throw ConfigError("[sweep] " + dimensions_[i].key +
                        ": a range in a grid needs points; set them");
    }
    const bool is_root = conditions_[i].dimension == size();
    if (is_root) points = capped_product(points, grid_[i].size);
  }
  return points;
}

SpacePoint Space::grid_point(int64_t number) const {
  SpacePoint point(size(), kNotThere);
  place(point, {size(), 0}, number);
  return point;
}

void Space::place(SpacePoint& point, const Condition& under, int64_t number) const {
  for (size_t i = size(); i-- > 0;) {
    const Condition& condition = conditions_[i];
    if (condition.dimension != under.dimension || condition.choice != under.choice) continue;
    const Axis& axis = grid_[i];
    int64_t here = number % axis.size;
    number /= axis.size;
    if (is_range(i)) {
      point[i] = axis.numbers[static_cast<size_t>(here)];
      continue;
    }
    int64_t choice = 0;
    while (here >= axis.sizes[static_cast<size_t>(choice)]) {
      here -= axis.sizes[static_cast<size_t>(choice++)];
    }
    point[i] = static_cast<double>(choice);
    place(point, {i, choice}, here);
  }
}

}  // namespace tanren
