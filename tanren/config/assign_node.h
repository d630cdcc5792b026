// assign(node, field): one value of a TOML tree into a field of the config; true if the node has
// the field's type. A text field that is "number or word" takes a number as its text. Called by
// read_config.cpp and filled_keys.cpp.
#pragma once

#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/toml.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

inline bool assign(const toml::node& node, std::string& member, bool number_or_word) {
  if (const auto* text = node.as_string()) {
    member = text->get();
    return true;
  }
  if (!number_or_word) return false;
  if (const auto* whole = node.as_integer()) {
    member = to_text(whole->get());
    return true;
  }
  if (const auto* number = node.as_floating_point()) {
    member = to_text(number->get());
    return true;
  }
  return false;
}

inline bool assign(const toml::node& node, bool& member, bool) {
  const auto* value = node.as_boolean();
  if (value != nullptr) member = value->get();
  return value != nullptr;
}

inline bool assign(const toml::node& node, int64_t& member, bool) {
  const auto* value = node.as_integer();
  if (value != nullptr) member = value->get();
  return value != nullptr;
}

inline bool assign(const toml::node& node, double& member, bool) {
  if (const auto* number = node.as_floating_point()) {
    member = number->get();
    return std::isfinite(member);
  }
  const auto* whole = node.as_integer();
  if (whole != nullptr) member = static_cast<double>(whole->get());
  return whole != nullptr;
}

template <typename T>
inline bool assign(const toml::node& node, std::optional<T>& member, bool flag) {
  T value{};
  if (!assign(node, value, flag)) return false;
  member = value;
  return true;
}

template <typename T>
inline bool assign(const toml::node& node, std::vector<T>& member, bool number_or_word) {
  const auto* array = node.as_array();
  if (array == nullptr) return false;
  std::vector<T> values;
  for (const auto& item : *array) {
    T value{};
    if (!assign(item, value, number_or_word)) return false;
    values.push_back(std::move(value));
  }
  member = std::move(values);
  return true;
}

inline bool assign(const toml::node& node, std::map<std::string, std::string>& member, bool) {
  const auto* table = node.as_table();
  if (table == nullptr) return false;
  member.clear();
  for (const auto& [key, value] : *table) {
    std::string text;
    if (!assign(value, text, true)) {
      const auto* flag = value.as_boolean();
      if (flag == nullptr) return false;
      text = flag->get() ? "true" : "false";
    }
    member[std::string(key.str())] = text;
  }
  return true;
}

inline bool assign(const toml::node& node, std::map<std::string, double>& member, bool) {
  const auto* table = node.as_table();
  if (table == nullptr) return false;
  std::map<std::string, double> values;
  for (const auto& [key, value] : *table) {
    if (!assign(value, values[std::string(key.str())], false)) return false;
  }
  member = std::move(values);
  return true;
}

// Lists of tables are read table by table: see append_table().
inline bool assign(const toml::node&, std::vector<GroupOptions>&, bool) { return false; }
inline bool assign(const toml::node&, std::vector<UnfreezeOptions>&, bool) { return false; }
inline bool assign(const toml::node&, std::vector<DimensionOptions>&, bool) { return false; }

inline bool assign(const toml::node& node, const Field& field) {
  return std::visit(
      [&](auto* member) {
        return assign(node, *member, field.info.text == TextKind::number_or_word);
      },
      field.member);
}

}  // namespace tanren
