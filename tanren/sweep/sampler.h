// Sampler: chooses the values of the next trial. Invariant: the choice is a pure function of the
// seed, the number of the trial and the records of earlier ones; nothing is kept between calls. So
// a replayed journal leads to the same choices. Called by Study.
#pragma once

#include "tanren/sweep/space.h"
#include "tanren/sweep/trial.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// A number in [0, 1) that depends only on these numbers. `use` distinguishes several draws for one
// dimension of one trial.
double keyed_share(uint64_t seed, int64_t trial, size_t dimension, int64_t use = 0);

class Sampler {
 public:
  virtual ~Sampler() = default;
  // The point of trial `id`; `records` are those of trials 0 to id - 1.
  virtual SpacePoint propose(const Space& space, int64_t id,
                             const std::vector<TrialRecord>& records) const = 0;
  // The most trials that it has points for; -1: any number.
  virtual int64_t most_trials(const Space&) const { return -1; }
};

struct SamplerOptions {
  std::string kind = "tpe";  // grid, random, tpe
  uint64_t seed = 0;
  bool lower_is_better = true;
};

// ConfigError for an unknown kind, naming the nearest one.
std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options);

// A file each.
std::unique_ptr<Sampler> make_grid_sampler();
std::unique_ptr<Sampler> make_random_sampler(uint64_t seed);
std::unique_ptr<Sampler> make_tpe_sampler(uint64_t seed, bool lower_is_better);

// The point that the random sampler proposes for trial `id`: each dimension is drawn independently.
SpacePoint random_point(const Space& space, uint64_t seed, int64_t id);

}  // namespace tanren
