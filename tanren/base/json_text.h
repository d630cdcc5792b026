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

// On one line, or indented by `indent` spaces per level. Bytes that are not UTF-8 become U+FFFD, so
// use it for text that people read and that no program reads back.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
// For values that must be read back unchanged. Throws nlohmann::json::type_error for a text that is
// not UTF-8.
std::string exact_json_text(const nlohmann::json& json, int indent = -1);
std::string exact_json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace tanren
