// A look at the machine as people and programs read it. Pure functions. Names and paths come from
// elsewhere: control characters in them are blanked.
#pragma once

#include "tanren/monitor/monitor.h"

#include <cstdint>
#include <string>

namespace tanren {

// Tables, each line at most `width` columns (0: as long as it takes).
std::string look_text(const Look& look, int64_t width);
// One line for the machine, each device and each run, each with the time before it: for a file or pipe.
std::string look_lines(const Look& look);
// One line of JSON (docs/monitor.md); null for what is unknown.
std::string look_json(const Look& look);

}  // namespace tanren
