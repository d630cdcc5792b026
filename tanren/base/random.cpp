#include "tanren/base/random.h"

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

const RandomScope* RandomScope::current() { return innermost; }

}  // namespace tanren
