#include "tanren/sweep/sampler.h"

namespace tanren {

namespace {

// All points of the grid, one after the other.
class GridSampler final : public Sampler {
 public:
  SpacePoint propose(const Space& space, int64_t id,
                     const std::vector<TrialRecord>&) const override {
    return space.grid_point(id);
  }
  int64_t most_trials(const Space& space) const override { return space.grid_size(); }
};

}  // namespace

std::unique_ptr<Sampler> make_grid_sampler() { return std::make_unique<GridSampler>(); }

}  // namespace tanren
