// The keys of [model] that somebody else's file filled in (model.from_hf), as TOML and back: what a run
// folder keeps of them. Pure; called by run.
#pragma once

#include "tanren/config/run_config.h"

#include <string>
#include <string_view>

namespace tanren {

// The keys of `filled` that `asked` has otherwise, as a table [model]. Empty if there is none.
std::string filled_keys(const ModelOptions& asked, const ModelOptions& filled);

// `asked` with the keys of such a text, but for those that it gives itself. ConfigError naming
// `source` if the text is none.
ModelOptions with_filled_keys(ModelOptions asked, std::string_view text, const std::string& source);

}  // namespace tanren
