// The sample that tanren eval prints of a language model: [generate] as text in, text out. Data of
// kind "text" is bytes; other tokens are written as numbers.
#pragma once

#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The prompt and what the model adds to it; empty if the task cannot generate or no tokens are
// asked. ConfigError for a prompt that the model cannot read.
std::optional<std::string> write_sample(const RunState& run, const Parts& parts);

// Valid UTF-8 that is safe on a terminal: what is neither, but for new lines and tabs, becomes
// U+FFFD.
std::string printable(const std::string& bytes);

}  // namespace tanren
