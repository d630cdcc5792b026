// The sample that tanren eval prints for a language model: [generate] as text in, text out. Data of
// kind "text" are bytes; other tokens are written as numbers.
#pragma once

#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The prompt and the model's continuation; empty if the task cannot generate or no tokens are
// requested. ConfigError for a prompt that the model cannot read.
std::optional<std::string> write_sample(const RunState& run, const Parts& parts);

// Returns valid UTF-8 that is safe on a terminal: invalid bytes and control characters, except new
// lines and tabs, become U+FFFD.
std::string printable(const std::string& bytes);

}  // namespace tanren
