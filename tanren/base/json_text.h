// JSON from and to text, compiled once: nlohmann's parser and writer take seconds of each file's
// compile time.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace tanren {

// `is_discarded()` if `text` is not JSON.
nlohmann::json parse_json(std::string_view text);
nlohmann::ordered_json parse_ordered_json(std::string_view text);

// On one line, or with `indent` spaces a level. For people and for facts that nobody reads back:
// has U+FFFD in place of bytes that are not UTF-8.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
// For values that must come back as they are. Throws nlohmann::json::type_error at a text that is
// not UTF-8.
std::string exact_json_text(const nlohmann::json& json, int indent = -1);
std::string exact_json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace tanren
