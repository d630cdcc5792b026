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

// Whether the pattern may match a block inside a block of this name: "h.*.mlp" in "h.0".
bool may_be_inside(const std::string& pattern, const std::string& block) {
  if (pattern.starts_with('*')) return true;
  for (size_t dot = pattern.find('.'); dot != std::string::npos; dot = pattern.find('.', dot + 1)) {
    if (matches(pattern.substr(0, dot), block)) return true;
  }
  return false;
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

void check_outermost_blocks(const MemoryPlan& plan, const std::vector<std::string>& blocks) {
  const auto outermost = [&](std::vector<std::string> patterns) {
    std::erase_if(patterns, [&](const std::string& pattern) {
      return std::any_of(blocks.begin(), blocks.end(),
                         [&](const auto& block) { return may_be_inside(pattern, block); });
    });
    return patterns;
  };
  check_block_patterns("memory.recompute", outermost(plan.recompute), blocks);
  check_block_patterns("memory.offload", outermost(plan.offload), blocks);
}

}  // namespace tanren
