// ParzenMixture: a density over the points of a Space, a kernel around each of some points and a
// broad one over the whole space (Bergstra et al. 2011; multivariate kernels as in Watanabe
// 2304.11127). A kernel is a product over dimensions: a normal distribution cut to the range, or
// probabilities of the choices. If a kernel's point lacks a dimension, the kernel is broad in it.
// Called only by the TPE sampler.
#pragma once

#include "tanren/sweep/space.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace tanren {

class ParzenMixture {
 public:
  // `points` are the kernels' centres; may be empty. `weights` are the kernels' weights, ≥ 0 with
  // mean 1; empty: all are 1. The broad kernel has the weight 1. `space` must outlive the mixture.
  ParzenMixture(const Space& space, const std::vector<const SpacePoint*>& points,
                const std::vector<double>& weights);

  // A point drawn from the mixture. `share(dimension)`: uniform numbers in [0, 1); dimension
  // space.size() chooses the kernel.
  SpacePoint draw(const std::function<double(size_t dimension)>& share) const;

  // The logarithm of the density at a point, over the dimensions that it has. O(kernels ×
  // dimensions).
  double log_density(const SpacePoint& point) const;

 private:
  // The kernels in one dimension.
  struct Range {
    std::vector<double> mean, precision;  // scaled; precision: 1 / deviation
    std::vector<double> offset;           // of the log density: - log(deviation × share inside)
  };
  struct Choices {
    std::vector<double> shares, logs;  // a row of all choices per kernel
  };

  void add_range(size_t dimension, const std::vector<const SpacePoint*>& points);
  void add_choices(size_t dimension, const std::vector<const SpacePoint*>& points);
  double draw_in_range(size_t dimension, size_t kernel, double share) const;
  double draw_choice(size_t dimension, size_t kernel, double share) const;

  const Space& space_;
  std::vector<double> weights_, log_weights_;  // of the kernels, sum 1; the last one is broad
  std::vector<Range> ranges_;                  // by dimension; empty for choices
  std::vector<Choices> choices_;               // by dimension; empty for ranges
};

// The inverse of the standard normal distribution's cumulative function, for shares in (0, 1); to
// 2e-9 of the value.
double normal_quantile(double share);

}  // namespace tanren
