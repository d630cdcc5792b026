// Text → RunConfig: TOML and --set, typed by fields.h. All problems come in one ConfigError, one
// line each, with file and line number. Later code does not see the text.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Reads `file`, applies `sets` ("key=value", in order; texts need no quotes, "key=none" unsets an
// optional key) and validates the result (validate.h).
// run.name defaults to the file's stem. Paths become absolute: paths in the file are relative to
// its folder, paths in `sets` to the working folder.
RunConfig read_config(const std::filesystem::path& file, const std::vector<std::string>& sets,
                      const KnownKinds& known);

// Reads the config that a run recorded, without validating it: it was valid when it was written,
// and stays readable even if validate refuses it now.
RunConfig read_recorded_config(const std::filesystem::path& file);
// The same for the text of a recorded config, whose paths are absolute. `source` names it in
// errors.
RunConfig parse_recorded_config(std::string_view text, const std::string& source);

// read_config on text. `source` names the text in errors; its paths are relative to `folder`.
RunConfig parse_config(std::string_view text, const std::string& source,
                       const std::filesystem::path& folder, const std::vector<std::string>& sets,
                       const KnownKinds& known);

}  // namespace tanren
