// The keys of [model] that an external file filled in (model.from_hf), written as TOML and read
// back: what a run folder keeps of them. Pure; called by run.
#pragma once

#include "tanren/config/run_config.h"

#include <string>
#include <string_view>

namespace tanren {

// The keys whose value in `filled` differs from `asked`, as a table [model]. Empty if there are
// none.
std::string filled_keys(const ModelOptions& asked, const ModelOptions& filled);

// `asked` with the keys of a text from filled_keys(), except keys that `asked` sets itself.
// ConfigError naming `source` if the text is not such a table.
ModelOptions with_filled_keys(ModelOptions asked, std::string_view text, const std::string& source);

}  // namespace tanren
