// Small text helpers: numbers as people read them. Torch-free; std::format is not in g++ 12.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tanren {

// Shortest decimal that reads back as the same double ("0.001", "1e-08", "3").
std::string to_text(double value);
std::string to_text(int64_t value);
// "1.5 GiB", "812 KiB"
std::string bytes_text(double bytes);
// "1h02m", "3m05s", "4.2s"
std::string seconds_text(double seconds);

// Columns that UTF-8 text takes on a terminal: combining marks take none, East Asian wide characters
// and emoji two. A byte that is no UTF-8 counts as one.
int64_t display_width(std::string_view text);
// `text` and as many spaces behind it as make it `width` columns.
std::string padded(std::string_view text, int64_t width);

}  // namespace tanren
