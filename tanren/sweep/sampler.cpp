#include "tanren/sweep/sampler.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/philox.h"

namespace tanren {

double keyed_share(uint64_t seed, int64_t trial, size_t dimension, int64_t use) {
  const uint64_t index = (static_cast<uint64_t>(dimension) << 32) | static_cast<uint64_t>(use);
  const uint64_t bits = random_bits(seed, static_cast<uint64_t>(trial), index);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

SpacePoint random_point(const Space& space, uint64_t seed, int64_t id) {
  return space.point([&](size_t dimension) {
    return space.value_at(dimension, keyed_share(seed, id, dimension));
  });
}

std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options) {
  if (options.kind == "grid") return make_grid_sampler();
  if (options.kind == "random") return make_random_sampler(options.seed);
  if (options.kind == "tpe") return make_tpe_sampler(options.seed, options.lower_is_better);
  const std::vector<std::string> kinds = {"grid", "random", "tpe"};
  const std::string near = nearest(options.kind, kinds);
  throw ConfigError("[sweep] sampler \"" + options.kind + "\" is unknown; one of " + join(kinds) +
                    (near.empty() ? "" : " (nearest: " + near + ")"));
}

}  // namespace tanren
