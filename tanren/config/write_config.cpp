#include "tanren/config/write_config.h"

#include "tanren/config/objective_keys.h"
#include "tanren/config/value_text.h"

namespace tanren {

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

}  // namespace tanren
