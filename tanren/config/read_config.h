// Text → RunConfig: TOML and --set, typed by fields.h. All problems come in one ConfigError, a line
// each, with file and line. After this nobody sees text.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Reads `file`, applies `sets` ("key=value", in order; texts need no quotes, "key=none" takes an
// optional key back), validates the whole (validate.h).
// run.name defaults to the file's stem. Paths become absolute: those in the file are relative to its
// folder, those of `sets` to the working folder.
RunConfig read_config(const std::filesystem::path& file, const std::vector<std::string>& sets,
                      const KnownKinds& known);

// What a run wrote down of its config, as it stands there: it was valid when it was written, and stays
// readable whatever validate refuses by now.
RunConfig read_recorded_config(const std::filesystem::path& file);

// The same as read_config on text; `source` stands in the error texts, `folder` is what its paths are relative to.
RunConfig parse_config(std::string_view text, const std::string& source,
                       const std::filesystem::path& folder, const std::vector<std::string>& sets,
                       const KnownKinds& known);

}  // namespace tanren
