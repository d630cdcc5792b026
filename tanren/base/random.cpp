#include "tanren/base/random.h"

#include <ATen/ATen.h>

#include <utility>

namespace tanren {

namespace {
thread_local const RandomScope* innermost = nullptr;
}  // namespace

RandomScope::RandomScope(uint64_t seed, int64_t attempt, at::Tensor ids)
    : seed_(seed), attempt_(attempt), ids_(std::move(ids)), outer_(innermost) {
  innermost = this;
}

RandomScope::~RandomScope() { innermost = outer_; }

const at::Tensor& RandomScope::ids_on(at::Device device) const {
  if (ids_.device() == device) return ids_;
  if (!device_ids_.defined() || device_ids_.device() != device) {
    device_ids_ = ids_.to(device, /*non_blocking=*/true);
  }
  return device_ids_;
}

const RandomScope* RandomScope::current() { return innermost; }

}  // namespace tanren
