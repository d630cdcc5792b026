#include "tanren/config/fix_line.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/set_text.h"
#include "tanren/config/toml.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <type_traits>
#include <vector>

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

// How to write a value of the member's type; empty if that takes more than a line.
template <typename Member>
std::string advice_for(const Member& member, const FieldInfo& info, const Assignment& line) {
  constexpr bool kIsTruth =
      std::is_same_v<Member, bool> || std::is_same_v<Member, std::optional<bool>>;
  constexpr bool kAreNumbers =
      std::is_same_v<Member, std::vector<int64_t>> || std::is_same_v<Member, std::vector<double>>;
  if constexpr (std::is_same_v<Member, std::string>) {
    const bool is_plain = (!info.number_or_word || is_word(line.value)) &&
                          !is_nothing(line.value) && !truth_of(line.value) &&
                          line.value.find_first_of("[]") == std::string::npos;
    if (is_plain) return "texts need quotes: " + line.key + " = " + toml_text(line.value);
  } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
    const std::string list = as_toml_list(in_brackets(line.value));
    if (!line.value.empty() && is_toml(list)) {
      return "lists need brackets, and texts quotes: " + line.key + " = " + list;
    }
  } else if constexpr (kAreNumbers) {
    const std::string list = in_brackets(line.value);
    if (!line.value.empty() && is_toml(list)) {
      return "lists need brackets: " + line.key + " = " + list;
    }
  } else if constexpr (kIsTruth) {
    if (const auto truth = truth_of(line.value)) {
      return "write " + line.key + " = " + toml_text(*truth);
    }
  } else if constexpr (is_table_list<Member> ||
                       std::is_same_v<Member, std::map<std::string, std::string>>) {
    return "";
  }
  return line.key + " takes " + type_text(member, info) + "; give that, or leave the line out";
}

}  // namespace

std::string way_to_fix(std::string_view text, int64_t number) {
  const std::string other = "mend the TOML";
  const auto line = assignment_at(text, number);
  if (!line || is_toml(line->value)) return other;
  const std::string key = (line->section.empty() ? "" : line->section + ".") + line->key;
  std::string advice;
  RunConfig config;
  visit_config(config, [&](const std::string& name, auto& member, const FieldInfo& info) {
    using Member = std::remove_reference_t<decltype(member)>;
    if (name == key) advice = advice_for(member, info, *line);
    if constexpr (is_table_list<Member>) {
      typename Member::value_type table;
      auto in_table = [&](const char* of_table, auto& part, const FieldInfo& part_info) {
        if (name + "." + of_table == key) advice = advice_for(part, part_info, *line);
      };
      fields(in_table, table);
    }
  });
  // The options of a registered model are texts here.
  if (key.starts_with("model.options.")) {
    advice = advice_for(std::string(), {.help = ""}, *line);
  }
  return one_line(advice.empty() ? other : advice);
}

}  // namespace tanren
