#include "tanren/train/check_blocks.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tanren {

namespace {

void check_block_patterns(const char* key, const std::vector<std::string>& patterns,
                          const std::vector<std::string>& blocks) {
  for (const auto& pattern : patterns) {
    const bool found = std::any_of(blocks.begin(), blocks.end(),
                                   [&](const auto& block) { return matches(pattern, block); });
    if (found) continue;
    throw ConfigError(
        fmt::format("[memory] {}: no block matches '{}'; there are {}", key, pattern,
                    blocks.empty() ? std::string("none in this model") : join(blocks)));
  }
}

}  // namespace

void check_blocks(const MemoryPlan& plan, const BlockPassages& blocks) {
  if (plan.recompute.empty() && plan.offload.empty()) return;
  std::vector<std::string> all, with_input;
  for (const auto& passage : blocks) {
    all.push_back(block_name(passage.id));
    if (passage.can_recompute) with_input.push_back(all.back());
  }
  check_block_patterns("memory.recompute", plan.recompute, with_input);
  check_block_patterns("memory.offload", plan.offload, all);
}

}  // namespace tanren
