// The sample of a language model: [generate] as text in, text out, by the tokenizer of its data.
// Data of kind "text" without a tokenizer are bytes; other tokens without one are written as
// numbers. Called by tanren eval and tanren generate.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Gets the text as it comes, the prompt first. Never ends within a character; the parts are the
// whole text.
using SeeText = std::function<void(std::string_view part)>;

struct SampleWays {
  SeeText see = {};           // empty: the text is returned alone
  bool reads_prompt = false;  // a prompt that the model cannot read at once is refused
};

// The prompt and the model's continuation; empty if the task cannot generate or no tokens are
// requested. `info`: of the training data. ConfigError for a prompt that the model cannot read.
std::optional<std::string> write_sample(const RunState& run, const Parts& parts,
                                        const DataInfo& info = {}, const SampleWays& ways = {});

// Returns valid UTF-8 that is safe on a terminal: invalid bytes and control characters, except new
// lines and tabs, become U+FFFD.
std::string printable(std::string_view bytes);

}  // namespace tanren
