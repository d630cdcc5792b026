// Values of config fields as TOML text, and their types' names for error texts.
#pragma once

#include "tanren/base/text.h"
#include "tanren/config/fields.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

inline std::string toml_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (code < 0x20 || code == 0x7f) {  // TOML requires escaped control characters
      constexpr char kHex[] = "0123456789ABCDEF";
      text += {'\\', 'u', '0', '0', kHex[code / 16], kHex[code % 16]};
    } else {
      text += c;
    }
  }
  return text + "\"";
}
inline std::string toml_text(bool value) { return value ? "true" : "false"; }
inline std::string toml_text(int64_t value) { return std::to_string(value); }
inline std::string toml_text(double value) {
  std::string text = to_text(value);
  // A TOML float needs a point or an exponent to read back as one.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}
// Whether a field is a list of tables, whose keys fields() lists.
template <typename T>
inline constexpr bool is_table_list = false;
template <>
inline constexpr bool is_table_list<std::vector<GroupOptions>> = true;
template <>
inline constexpr bool is_table_list<std::vector<UnfreezeOptions>> = true;

inline std::string toml_text(const GroupOptions& group);
inline std::string toml_text(const UnfreezeOptions& unfreeze);
template <typename T>
std::string toml_text(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + toml_text(values[i]);
  return text + "]";
}
template <typename T>
std::string toml_text(const std::optional<T>& value) {
  return value ? toml_text(*value) : "";
}
inline std::string toml_text(const std::map<std::string, std::string>& table) {
  std::string text = "{";
  for (const auto& [key, value] : table) {
    text += (text.size() > 1 ? ", " : "") + toml_text(key) + " = " + toml_text(value);
  }
  return text + "}";
}
template <typename Table>
std::string table_text(Table copy) {
  std::string text;
  auto write = [&](const char* key, const auto& member, const FieldInfo&) {
    const std::string value = toml_text(member);
    if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(key) + " = " + value;
  };
  fields(write, copy);
  return "{" + text + "}";
}
inline std::string toml_text(const GroupOptions& group) { return table_text(group); }
inline std::string toml_text(const UnfreezeOptions& unfreeze) { return table_text(unfreeze); }

inline const char* type_name(const std::string&) { return "text"; }
inline const char* type_name(bool) { return "true or false"; }
inline const char* type_name(int64_t) { return "a whole number"; }
inline const char* type_name(double) { return "a number"; }
inline const char* type_name(const std::optional<int64_t>&) { return "a whole number"; }
inline const char* type_name(const std::optional<double>&) { return "a number"; }
inline const char* type_name(const std::optional<bool>&) { return "true or false"; }
inline const char* type_name(const std::vector<int64_t>&) { return "a list of whole numbers"; }
inline const char* type_name(const std::vector<double>&) { return "a list of numbers"; }
inline const char* type_name(const std::vector<std::string>&) { return "a list of texts"; }
inline const char* type_name(const std::map<std::string, std::string>&) {
  return "a table of plain values";
}
template <typename Table>
const char* type_name(const std::vector<Table>&) {
  return "a list of tables";
}

// The type of value that a key takes, in words.
template <typename T>
std::string type_text(const T& member, const FieldInfo& info) {
  constexpr bool kIsList = requires { member.begin(); }
  &&!std::is_same_v<T, std::string>;
  const char* more = !info.number_or_word ? "" : kIsList ? " or numbers" : " or a number";
  return std::string(type_name(member)) + more;
}

}  // namespace tanren
