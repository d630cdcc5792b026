// Formats a look at the machine for people and programs. Pure functions. Names and paths are
// untrusted: control characters in them are blanked.
#pragma once

#include "tanren/monitor/monitor.h"

#include <cstdint>
#include <string>

namespace tanren {

// Tables, each line at most `width` columns (0: unlimited).
std::string look_text(const Look& look, int64_t width);
// For a file or pipe: one line for the machine, each device and each run, each after the time.
std::string look_lines(const Look& look);
// One line of JSON (docs/monitor.md); null for unknown values.
std::string look_json(const Look& look);

}  // namespace tanren
