// Advice on a line of a config file that is not TOML: how to write the value of its key. People
// leave out quotes and brackets, and write True and None. Called only by read_config.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tanren {

// Advice on line `number` (from 1) of `text`, where parsing stopped: "texts need quotes: path =
// "train.csv"", or what its key takes. "fix the TOML" if the line gives no hint.
std::string way_to_fix(std::string_view text, int64_t number);

}  // namespace tanren
