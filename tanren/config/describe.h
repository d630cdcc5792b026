// Descriptions of the keys: `tanren help [KEY]` and docs/config.md, both from fields.h.
#pragma once

#include <string>
#include <vector>

namespace tanren {

// Help on a key, on a section or, if `given` is empty, on all keys. ConfigError for an unknown key,
// naming the nearest one.
std::string help_text(const std::string& given);
// The page docs/config.md.
std::string config_markdown();
// The table of docs/resume.md: what may change when a run resumes, and what in a fork.
std::string changes_markdown();
// All full keys, in order.
std::vector<std::string> all_keys();
// What follows "objectives.NAME." in the keys of an objective: "every", "optimizer.kind", …
std::vector<std::string> objective_keys();

}  // namespace tanren
