#include "tanren/base/loss_seeds.h"

#include <ATen/ATen.h>

namespace tanren {

namespace {
thread_local LossSeeds* innermost_seeds = nullptr;
}  // namespace

at::Tensor LossSeeds::of(const std::string& term, const std::string& count_name,
                         at::ScalarType dtype, at::Device device) {
  for (const Seed& seed : made_) {
    const at::Tensor& tensor = seed.tensor;
    if (seed.term == term && seed.count_name == count_name && tensor.scalar_type() == dtype &&
        tensor.device() == device) {
      return tensor;
    }
  }
  const auto factor = factor_(term, count_name);
  if (!factor) return {};
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  return made_.emplace_back(Seed{term, count_name, at::scalar_tensor(*factor, options)}).tensor;
}

LossSeedsScope::LossSeedsScope(LossSeeds* seeds) : outer_(innermost_seeds) {
  innermost_seeds = seeds;
}

LossSeedsScope::~LossSeedsScope() { innermost_seeds = outer_; }

LossSeeds* LossSeedsScope::current() { return innermost_seeds; }

}  // namespace tanren
