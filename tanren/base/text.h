// Text: fmt::format composes texts, functions such as to_text format single numbers. Torch-free;
// g++ 12 has no std::format.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tanren {

// Shortest decimal that reads back as the same double ("0.001", "1e-08", "3").
std::string to_text(double value);
template <std::integral Number>
std::string to_text(Number value) {
  return std::to_string(value);
}
// With `digits` digits after the point: "3.14".
std::string fixed_text(double value, int digits);
// With at most `digits` significant digits: "0.0314", "3.14e-09".
std::string short_text(double value, int digits);
// "1.5 GiB", "812 KiB"
std::string bytes_text(double bytes);
inline std::string size_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }
// "1,234,567"
std::string count_text(int64_t count);
// The first line that is not blank, for messages that may contain a stack trace.
std::string first_line(const std::string& text);
// Parses an amount of at least 1 byte, such as "8GiB", "1.5 GB", "800M" or "4096", or a share in
// (0, 1), such as "0.5" or "50%". Units may be in upper or lower case; K, M, G and T alone are
// powers of 1024. Empty if `text` is neither.
struct MemoryAmount {
  int64_t bytes = 0;  // 0: a share
  double share = 0;
};
std::optional<MemoryAmount> parse_memory(std::string_view text);
// "1h02m", "3m05s", "4.2s"
std::string seconds_text(double seconds);
// Parses a length of time as seconds: numbers with the units d, h, m and s, the largest unit first
// ("8h", "1h30m", "1.5 h"), or one number alone, which counts seconds. Empty if `text` is neither,
// or not above 0.
std::optional<double> parse_seconds(std::string_view text);

// `text` without the blanks, tabs and line ends around it.
std::string_view trimmed(std::string_view text);
// Splits off the next line, without its line end ("\n" or "\r\n").
std::string_view take_line(std::string_view& text);

// Columns that UTF-8 text takes on a terminal: combining marks take none, East Asian wide
// characters and emoji two. A byte that is not valid UTF-8 takes one.
int64_t display_width(std::string_view text);
// The part of `text` that fits into `width` columns; whole characters only.
std::string cut_text(std::string_view text, int64_t width);
// `text` with spaces after it, up to `width` columns.
std::string padded(std::string_view text, int64_t width);

}  // namespace tanren
