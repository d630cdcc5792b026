#include "tanren/config/write_config.h"

#include "tanren/config/fields.h"
#include "tanren/config/value_text.h"

namespace tanren {

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  std::string text, section;
  const bool has_eval = !config.data.eval.kind.empty();
  visit_config(copy, [&](const std::string& key, auto& member, const FieldInfo&) {
    if (!has_eval && key.rfind("data.eval.", 0) == 0) return;
    const auto dot = key.rfind('.');
    const std::string value = toml_text(member);
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      text += (text.empty() ? "[" : "\n[") + section + "]\n";
    }
    if (value.empty()) return;
    const bool is_default = config.asked.count(key) == 0;
    text += key.substr(dot + 1) + " = " + value + (is_default ? "  # default\n" : "\n");
  });
  return text;
}

}  // namespace tanren
