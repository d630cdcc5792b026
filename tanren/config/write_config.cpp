#include "tanren/config/write_config.h"

#include "tanren/config/objective_keys.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/config/set_value.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <variant>

namespace tanren {

namespace {

bool is_optional(const Field& field) {
  return std::visit(
      [](auto* member) {
        return requires { member->reset(); };
      },
      field.member);
}

// The line of one key in its section.
std::string toml_line(const Field* field, const std::string& key, const std::string& value) {
  const std::string name = key.substr(key.rfind('.') + 1);
  if (value == "none" && field != nullptr && is_optional(*field)) {
    return "# " + name + " is not set\n";
  }
  const bool is_text = key.starts_with("model.options.");
  const std::string text = is_text ? "" : parse_set_value(field, value).text;
  return name + " = " + (text.empty() ? toml_text(value) : text) + "\n";
}

}  // namespace

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  std::string text, section;
  const auto inherited = inherited_keys(config);
  const bool has_eval = !config.data.eval.kind.empty();
  for (const Field& field : fields_of(copy)) {
    const std::string& key = field.key;
    const std::string value = toml_text(field);
    if (!has_eval && key.starts_with("data.eval.")) continue;
    if (inherited.count(key) > 0) continue;
    const auto dot = key.rfind('.');
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      text += (text.empty() ? "[" : "\n[") + section + "]\n";
    }
    if (value.empty()) continue;
    const bool is_default = config.asked.count(key) == 0 && objective_prefix(key).empty();
    text += key.substr(dot + 1) + " = " + value + (is_default ? "  # default\n" : "\n");
  }
  return text;
}

std::string toml_of_sets(RunConfig config,
                         const std::vector<std::pair<std::string, std::string>>& sets) {
  for (const auto& [key, value] : sets) add_objective(config, key);
  const std::vector<Field> fields = fields_of(config);
  std::vector<std::pair<std::string, std::string>> sections;  // name and lines
  for (const auto& [given, value] : sets) {
    const std::string key = current_key(given);
    const std::string section = key.substr(0, key.rfind('.'));
    auto found = std::find_if(sections.begin(), sections.end(),
                              [&](const auto& each) { return each.first == section; });
    if (found == sections.end()) found = sections.insert(found, {section, ""});
    found->second += toml_line(find_field(fields, key), key, value);
  }
  std::string text;
  for (const auto& [section, lines] : sections) {
    text += (text.empty() ? "[" : "\n[") + section + "]\n" + lines;
  }
  return text;
}

}  // namespace tanren
