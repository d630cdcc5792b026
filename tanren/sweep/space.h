// Space: the dimensions of a search and the points in it. A dimension is a range of numbers or a
// list of choices; one with a condition exists only where another has a certain value. Pure values
// and functions: no draw is kept, so that each is decided by the numbers that the caller gives.
// Called by samplers, schedulers and Study; programs make one for a Study.
#pragma once

#include "tanren/config/sections/sweep.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// One coordinate per dimension of the Space: the number itself in a range, the index of a choice,
// kNotThere in a dimension that the point does not have.
using SpacePoint = std::vector<double>;
constexpr double kNotThere = std::numeric_limits<double>::quiet_NaN();

// Key and value as --set takes it, in the order of the dimensions.
using TrialValues = std::vector<std::pair<std::string, std::string>>;

class Space {
 public:
  // ConfigError with all problems of the dimensions (space_rules.h), a line each.
  Space(std::vector<DimensionOptions> dimensions);  // NOLINT(google-explicit-constructor)
  Space(std::initializer_list<DimensionOptions> dimensions)
      : Space(std::vector<DimensionOptions>(dimensions)) {}

  const std::vector<DimensionOptions>& dimensions() const { return dimensions_; }
  size_t size() const { return dimensions_.size(); }
  // The dimension of that key; size() if there is none.
  size_t index_of(const std::string& key) const;

  bool is_range(size_t dimension) const { return dimensions_[dimension].values.empty(); }
  // Only for a dimension that is not a range.
  int64_t num_choices(size_t dimension) const;

  // The ends of a range as samplers use them: logarithms on a log scale. If only whole numbers
  // count, the ends are extended by one half, so that each number has the same room.
  double lower(size_t dimension) const { return bounds_[dimension].first; }
  double upper(size_t dimension) const { return bounds_[dimension].second; }
  double scaled(size_t dimension, double value) const;
  // The value of the range that belongs to a scaled number: rounded if whole, within the ends.
  double unscaled(size_t dimension, double scaled) const;

  // The value at `share`, in [0, 1), of the dimension: each part of the scale, or each choice, has
  // the same probability if `share` is uniform.
  double value_at(size_t dimension, double share) const;

  // The point whose coordinates are `value(dimension)`, asked only for the dimensions that it has,
  // each after the one that its condition names.
  SpacePoint point(const std::function<double(size_t dimension)>& value) const;
  // Whether a point has the dimension. `point` must hold the dimension that its condition names.
  bool has(const SpacePoint& point, size_t dimension) const;
  // The dimension and the index of the choice that a dimension's condition names; size(): none.
  std::pair<size_t, int64_t> condition(size_t dimension) const {
    return {conditions_[dimension].dimension, conditions_[dimension].choice};
  }

  // The values for the journal and the trial. A number is the shortest text that parses to the same
  // double.
  TrialValues values_of(const SpacePoint& point) const;
  // InputError for values that are not of this space.
  SpacePoint point_of(const TrialValues& values) const;

  // The number of points of the grid. It has every choice, and `points` numbers of a range, evenly
  // spaced on its scale; whole numbers that round to the same one count once. ConfigError if a
  // range has no `points`. The result is at most 2^40, which may also mean more.
  int64_t grid_size() const;
  // The point of that number, below grid_size(). The last dimension varies fastest.
  SpacePoint grid_point(int64_t number) const;

  // A point near `point`, for population-based training. Each number is multiplied by 0.8 or 1.2,
  // and each choice is replaced by a neighbour in its list. With probability 1/4 a coordinate is
  // drawn again instead (Jaderberg et al. 1711.09846; Ray's defaults). `share(dimension, use)`
  // gives uniform numbers in [0, 1); `use` is 0 to 2.
  SpacePoint perturbed(const SpacePoint& point,
                       const std::function<double(size_t dimension, int64_t use)>& share) const;

 private:
  struct Condition {
    size_t dimension = 0;  // size(): none
    int64_t choice = 0;
  };
  // A dimension of the grid.
  struct Axis {
    int64_t size = 0;             // points, with those of the dimensions under it; 0: none
    std::vector<double> numbers;  // of a range
    std::vector<int64_t> sizes;   // of the dimensions under each choice
  };

  void lay_grid();
  std::vector<double> numbers_of(size_t dimension) const;
  // Sets the dimensions of that condition to the values of that number.
  void place(SpacePoint& point, const Condition& under, int64_t number) const;

  std::vector<DimensionOptions> dimensions_;
  std::vector<std::pair<double, double>> bounds_;  // of ranges, scaled
  std::vector<Condition> conditions_;
  std::vector<size_t> order_;  // of the dimensions, each after the one that its condition names
  std::vector<Axis> grid_;
};

}  // namespace tanren
