#include "tanren/config/fix_line.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/set_text.h"
#include "tanren/config/toml.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace tanren {

namespace {

struct Assignment {
  std::string section, key, value;  // as written in the line
};

// The assignment in line `number`, if there is one. Its section is the last one named before it.
std::optional<Assignment> assignment_at(std::string_view text, int64_t number) {
  Assignment found;
  std::string_view line;
  for (int64_t i = 0; i < number && !text.empty(); ++i) {
    line = trimmed(take_line(text));
    if (!line.starts_with("[")) continue;
    const std::string_view name = line.substr(std::min(line.find_first_not_of('['), line.size()));
    found.section = trimmed(name.substr(0, name.find(']')));
  }
  const auto equals = line.find('=');
  if (equals == std::string_view::npos || line.find('#') < equals) return std::nullopt;
  found.key = trimmed(line.substr(0, equals));
  found.value = trimmed(line.substr(equals + 1, line.find('#') - equals - 1));
  // A value in quotes, or a table, has a different error.
  if (found.key.empty() || found.value.find_first_of("\"'{}=") != std::string::npos) {
    return std::nullopt;
  }
  return found;
}

bool is_toml(const std::string& value) {
  try {
    return toml::parse("v = " + value).size() == 1;
  } catch (const toml::parse_error&) {
    return false;
  } catch (const TomlFault&) {
    return false;
  }
}

std::optional<bool> truth_of(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

bool is_word(const std::string& value) {
  return std::all_of(value.begin(), value.end(),
                     [](unsigned char c) { return std::isalpha(c) != 0; });
}

// How other languages write an absent value.
bool is_nothing(const std::string& word) {
  return word.empty() || word == "None" || word == "null" || word == "nil";
}

std::string in_brackets(const std::string& value) {
  return value.starts_with("[") ? value : "[" + value + "]";
}

// How to write a value of the field's type; empty if that takes more than a line.
std::string advice_for(const Field& field, const Assignment& line) {
  if (field.is<std::string>()) {
    const bool is_plain = (field.info.text != TextKind::number_or_word || is_word(line.value)) &&
                          !is_nothing(line.value) && !truth_of(line.value) &&
                          line.value.find_first_of("[]") == std::string::npos;
    if (is_plain) return "texts need quotes: " + line.key + " = " + toml_text(line.value);
  } else if (field.is<std::vector<std::string>>()) {
    const std::string list = as_toml_list(in_brackets(line.value));
    if (!line.value.empty() && is_toml(list)) {
      return "lists need brackets, and texts quotes: " + line.key + " = " + list;
    }
  } else if (field.is<std::vector<int64_t>>() || field.is<std::vector<double>>()) {
    const std::string list = in_brackets(line.value);
    if (!line.value.empty() && is_toml(list)) {
      return "lists need brackets: " + line.key + " = " + list;
    }
  } else if (field.is<bool>() || field.is<std::optional<bool>>()) {
    if (const auto truth = truth_of(line.value)) {
      return "write " + line.key + " = " + toml_text(*truth);
    }
  } else if (field.is<std::map<std::string, std::string>>() ||
             field.is<std::map<std::string, double>>() || is_table_list(field)) {
    return "";
  }
  return line.key + " takes " + type_text(field) + "; give that, or leave the line out";
}

}  // namespace

std::string way_to_fix(std::string_view text, int64_t number) {
  std::string other = "fix the TOML";
  const auto line = assignment_at(text, number);
  if (!line || is_toml(line->value)) return other;
  const std::string key = (line->section.empty() ? "" : line->section + ".") + line->key;
  RunConfig config;
  add_objective(config, key);
  std::vector<Field> fields = fields_of(config);
  const Field* list = find_field(fields, std::string_view(key).substr(0, key.rfind('.')));
  if (list != nullptr) fields = append_table(*list);
  std::string value;
  const Field option{key, &value, {}};  // the options of a registered model are texts
  const Field* field = key.starts_with("model.options.") ? &option : find_field(fields, key);
  const std::string advice = field == nullptr ? "" : advice_for(*field, *line);
  return one_line(advice.empty() ? other : advice);
}

}  // namespace tanren
