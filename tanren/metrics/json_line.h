// One report as one line of log.jsonl (without the line feed). Pure functions. Invariant: all
// repeatable values come before the key "timing", which is last. Two equal runs give bitwise equal
// lines once `,"timing":{…}` is cut off. Numbers read back to the same double. JSON has no NaN and
// infinity: they become null (the key "cause" says which it was).
#pragma once

#include "tanren/base/report.h"

#include <string>
#include <string_view>

namespace tanren {

// Values at the top level are those of the first objective; "objectives" lists all of them if there
// are several.
std::string json_line(const StepReport& report);
std::string json_line(const EvaluationReport& report);

// Appends to `out`: text in quotes with JSON's escapes, and U+FFFD for bytes that are not UTF-8; a
// number, or null if it is not finite.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, double value);
// append_key appends `"key":` to an open object, after a comma unless it is the first key;
// append_member appends the value too.
void append_key(std::string& out, std::string_view key);
void append_member(std::string& out, std::string_view key, double value);
void append_member(std::string& out, std::string_view key, int64_t value);
void append_member(std::string& out, std::string_view key, std::string_view text);

}  // namespace tanren
