// One report as one line of log.jsonl (without the line feed). Pure functions.
// Invariant: whatever is repeatable comes before the key "timing", which is last; two equal runs
// give lines that are bitwise equal once `,"timing":{…}` is cut off. Numbers read back to the same
// double; NaN and infinity, which JSON lacks, become null (the key "cause" says which it was).
#pragma once

#include "tanren/base/report.h"

#include <string>
#include <string_view>

namespace tanren {

// Values at the top level are those of the first objective; "objectives" lists all of them where
// there are several.
std::string json_line(const StepReport& report);
std::string json_line(const EvaluationReport& report);

// Appends to `out`: text in quotes with JSON's escapes, and U+FFFD for bytes that are no UTF-8; a
// number, or null if it is not finite.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, double value);
// Appends `"key":` to an object that is open, after a comma unless it is the first; and its value.
void append_key(std::string& out, std::string_view key);
void append_member(std::string& out, std::string_view key, double value);
void append_member(std::string& out, std::string_view key, int64_t value);
void append_member(std::string& out, std::string_view key, std::string_view text);

}  // namespace tanren
