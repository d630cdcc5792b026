#include "tanren/config/set_value.h"

#include "tanren/base/text.h"
#include "tanren/config/set_text.h"
#include "tanren/config/value_text.h"

#include <utility>
#include <vector>

namespace tanren {

SetValue parse_set_value(const Field* field, const std::string& value) {
  // A list may do without its brackets: a,b.
  const bool is_bare = !trimmed(value).empty() && trimmed(value).front() != '[';
  const std::string list = is_bare ? "[" + value + "]" : value;
  std::vector<std::string> readings = {value, toml_text(value)};
  if (field != nullptr) {
    if (field->is<std::string>() && field->info.text != TextKind::number_or_word) {
      readings = {as_toml_text(value)};
    } else if (field->is<std::vector<std::string>>()) {
      readings = {list, as_toml_list(list), toml_text(value)};
    } else if (field->is<std::vector<int64_t>>() || field->is<std::vector<double>>()) {
      readings = {list, value, toml_text(value)};
    }
  }
  if (has_deep_keys(value)) return {};
  for (std::string& reading : readings) {
    try {
      auto table = std::make_unique<toml::table>(toml::parse("v = " + reading));
      if (table->size() == 1) return {std::move(reading), std::move(table)};
    } catch (const toml::parse_error&) {
      continue;
    } catch (const TomlFault&) {
      continue;
    }
  }
  return {};
}

}  // namespace tanren
