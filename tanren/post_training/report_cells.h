// Cells and notes of a quantisation's report: texts from outside, numbers that may be unknown, and
// lines of at most 100 columns. Pure functions. Called by the tables of report_tables.h.
#pragma once

#include "tanren/page/table.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tanren {

inline constexpr int64_t kReportColumns = 100;
inline constexpr const char* kUnknown = "-";

std::string outside_text(const std::string& text);  // on one line; "-" if it is empty
std::string with_minus(const std::string& number);  // with a minus as long as a plus
std::string digits_text(double value, int digits);  // at most `digits` significant digits
std::string known_share(double share);              // "41.2 %"
// Lines of at most `columns`, broken at blanks. A longer word has its own line.
std::string wrapped_text(const std::string& text, int64_t columns);
// `text` in at most `most` characters; the middle is left out.
std::string middle_left_out(const std::string& text, size_t most);
// Adds `line` to the table's note, wrapped; an empty one is left out.
void add_note(Table& table, const std::string& line);

}  // namespace tanren
