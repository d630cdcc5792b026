// ParzenMixture: a density over the points of a Space, a kernel around each of some points and a
// broad one over the whole space (Bergstra et al. 2011; multivariate kernels as in Watanabe
// 2304.11127). A kernel is a product over dimensions: a normal distribution cut to the range, or
// probabilities of the choices. Where its point lacks a dimension, a kernel is broad in it.
// Called by the TPE sampler alone.
#pragma once

#include "tanren/sweep/space.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace tanren {

class ParzenMixture {
 public:
  // `points`: the centres; may be empty. `space` must outlive the mixture.
  ParzenMixture(const Space& space, const std::vector<const SpacePoint*>& points);

  // A point drawn from the mixture. `share(dimension)`: uniform numbers in [0, 1); dimension
  // space.size() chooses the kernel.
  SpacePoint draw(const std::function<double(size_t dimension)>& share) const;

  // The logarithm of the density at a point, over the dimensions that it has. O(kernels ×
  // dimensions).
  double log_density(const SpacePoint& point) const;

 private:
  // Of one kernel in one range.
  struct Normal {
    double mean = 0, deviation = 1;  // scaled
    double below = 0, inside = 1;    // probability below the range, and in it
    double log_scale = 0;            // of deviation × inside
  };

  const Space& space_;
  size_t num_kernels_;                          // the last one is broad
  std::vector<std::vector<Normal>> normals_;    // by dimension and kernel; empty for choices
  // By dimension, kernel and choice, in one row each; empty for ranges.
  std::vector<std::vector<double>> shares_, log_shares_;
};

}  // namespace tanren
