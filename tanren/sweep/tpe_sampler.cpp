#include "tanren/sweep/parzen.h"
#include "tanren/sweep/sampler.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

// The settings that Watanabe (arXiv 2304.11127) found best, over many functions.
constexpr int64_t kRandomTrials = 10;
constexpr int64_t kCandidates = 24;
constexpr double kGoodShare = 0.15;

// A trial. Its cost is infinite if it has no value, because it still runs or has failed.
struct Observation {
  const TrialRecord* record;
  double cost;
};

// Trials with more steps come first, then those with a lower cost. So a trial that asha paused
// early is never better than one that asha promoted. Trials without a value come last.
bool is_better(const Observation& a, const Observation& b) {
  const bool has_value = std::isfinite(a.cost);
  if (has_value != std::isfinite(b.cost)) return has_value;
  if (has_value && a.record->step != b.record->step) return a.record->step > b.record->step;
  if (has_value && a.cost != b.cost) return a.cost < b.cost;
  return a.record->id < b.record->id;
}

// Tree-structured Parzen estimator (Bergstra et al. 2011). It draws some points from the density of
// the good trials and takes the one with the highest ratio to the density of the bad trials. A good
// trial's weight is its improvement over the best bad trial. A running trial without a value counts
// as bad, so that parallel trials do not gather in one place.
class TpeSampler final : public Sampler {
 public:
  TpeSampler(uint64_t seed, bool lower_is_better) : seed_(seed), lower_(lower_is_better) {}

  SpacePoint propose(const Space& space, int64_t id,
                     const std::vector<TrialRecord>& records) const override {
    if (id < kRandomTrials) return random_point(space, seed_, id);
    std::vector<Observation> seen;
    for (const TrialRecord& record : records) {
      if (!record.same_as) seen.push_back({&record, cost_of(record, lower_)});
    }
    std::sort(seen.begin(), seen.end(), is_better);
    const size_t good = num_good(seen);
    if (good == 0) return random_point(space, seed_, id);
    std::vector<const SpacePoint*> best, rest;
    for (size_t i = 0; i < seen.size(); ++i) {
      (i < good ? best : rest).push_back(&seen[i].record->point);
    }
    const ParzenMixture near(space, best, weights_of(seen, good)), far(space, rest, {});
    SpacePoint chosen;
    double highest = 0;
    for (int64_t candidate = 0; candidate < kCandidates; ++candidate) {
      SpacePoint point =
          near.draw([&](size_t dimension) { return keyed_share(seed_, id, dimension, candidate); });
      const double ratio = near.log_density(point) - far.log_density(point);
      if (!chosen.empty() && !(ratio > highest)) continue;
      highest = ratio;
      chosen = std::move(point);
    }
    return chosen;
  }

 private:
  // A share of those with a value, at least one of them.
  static size_t num_good(const std::vector<Observation>& seen) {
    const auto end = std::find_if(seen.begin(), seen.end(),
                                  [](const Observation& one) { return !std::isfinite(one.cost); });
    return static_cast<size_t>(std::ceil(kGoodShare * static_cast<double>(end - seen.begin())));
  }

  // Weights of the good trials, with mean 1: the improvements over the best bad trial, if that one
  // is at the same step. Otherwise all are 1.
  static std::vector<double> weights_of(const std::vector<Observation>& seen, size_t good) {
    std::vector<double> weights(good, 1.0);
    const bool has_edge = good < seen.size() && std::isfinite(seen[good].cost) &&
                          seen[good].record->step == seen[0].record->step;
    if (!has_edge) return weights;
    double sum = 0;
    for (size_t i = 0; i < good; ++i) sum += weights[i] = seen[good].cost - seen[i].cost;
    if (!(sum > 0) || !std::isfinite(sum)) return std::vector<double>(good, 1.0);
    for (double& weight : weights) weight *= static_cast<double>(good) / sum;
    return weights;
  }

  uint64_t seed_;
  bool lower_;
};

}  // namespace

std::unique_ptr<Sampler> make_tpe_sampler(uint64_t seed, bool lower_is_better) {
  return std::make_unique<TpeSampler>(seed, lower_is_better);
}

}  // namespace tanren
