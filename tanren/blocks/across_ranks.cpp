#include "tanren/blocks/across_ranks.h"

#include <utility>

namespace tanren {

namespace {
thread_local const AcrossRanksScope* innermost_ranks = nullptr;
}  // namespace

AcrossRanksScope::AcrossRanksScope(std::shared_ptr<const GatherRows> gather)
    : gather_(std::move(gather)), outer_(innermost_ranks) {
  innermost_ranks = this;
}

AcrossRanksScope::~AcrossRanksScope() { innermost_ranks = outer_; }

std::shared_ptr<const GatherRows> AcrossRanksScope::current() {
  return innermost_ranks != nullptr ? innermost_ranks->gather_ : nullptr;
}

}  // namespace tanren
