#include "tanren/config/write_config.h"

#include "tanren/config/value_text.h"

namespace tanren {

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  std::string text, section;
  const bool has_eval = !config.data.eval.kind.empty();
  for (const Field& field : fields_of(copy)) {
    const std::string& key = field.key;
    const std::string value = toml_text(field);
    if (!has_eval && key.starts_with("data.eval.")) continue;
    const auto dot = key.rfind('.');
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      text += (text.empty() ? "[" : "\n[") + section + "]\n";
    }
    if (value.empty()) continue;
    const bool is_default = config.asked.count(key) == 0;
    text += key.substr(dot + 1) + " = " + value + (is_default ? "  # default\n" : "\n");
  }
  return text;
}

}  // namespace tanren
