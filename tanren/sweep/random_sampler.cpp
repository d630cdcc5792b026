#include "tanren/sweep/sampler.h"

namespace tanren {

namespace {

// Draws keyed by seed, trial and dimension: no trial changes those of another.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(uint64_t seed) : seed_(seed) {}

  SpacePoint propose(const Space& space, int64_t id,
                     const std::vector<TrialRecord>&) const override {
    return random_point(space, seed_, id);
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Sampler> make_random_sampler(uint64_t seed) {
  return std::make_unique<RandomSampler>(seed);
}

}  // namespace tanren
