// A line of a config file that is no TOML, and how its key wants it: people leave out quotes and brackets,
// and write True and None. Called by read_config.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tanren {

// Advice on the line of this number (from 1) of `text`, at which parsing stopped: "texts need quotes:
// path = "train.csv"", or what its key takes. "mend the TOML" where the line does not say.
std::string way_to_fix(std::string_view text, int64_t number);

}  // namespace tanren
