// The keys in words: `tanren help [KEY]` and docs/config.md, both from fields.h.
#pragma once

#include <string>
#include <vector>

namespace tanren {

// Help on a key, on a section, or (empty) on all; ConfigError naming the nearest for an unknown one.
std::string help_text(const std::string& asked);
// The page docs/config.md.
std::string config_markdown();
// All full keys, in order.
std::vector<std::string> all_keys();

}  // namespace tanren
