#include "tanren/base/json_text.h"

#include <nlohmann/json.hpp>

namespace tanren {

namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, kReplace);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, kReplace);
}

std::string exact_json_text(const nlohmann::json& json, int indent) { return json.dump(indent); }

std::string exact_json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent);
}

}  // namespace tanren
