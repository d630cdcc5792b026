#include "tanren/config/describe.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/config/fields.h"
#include "tanren/config/synonyms.h"
#include "tanren/config/value_text.h"

namespace tanren {

std::vector<std::string> all_keys() {
  RunConfig config;
  std::vector<std::string> keys;
  visit_config(config, [&](const std::string& key, auto&, const FieldInfo&) { keys.push_back(key); });
  return keys;
}

std::string help_text(const std::string& asked) {
  RunConfig config;
  std::string text;
  visit_config(config, [&](const std::string& key, auto& member, const FieldInfo& info) {
    if (!asked.empty() && key != asked && key.rfind(asked + ".", 0) != 0) return;
    const std::string value = toml_text(member);
    text += key + " (" + type_name(member) + (info.number_or_word ? " or a number" : "") +
            ", default " + (value.empty() ? "not set" : value) + ")\n    " + info.help + "\n";
  });
  if (!text.empty()) {
    text.pop_back();
    return text;
  }
  if (const auto known = synonym(asked)) {
    throw ConfigError("[config] there is no key " + asked + "; here it is " + *known);
  }
  const auto best = nearest(asked, all_keys());
  throw ConfigError("[config] there is no key " + asked +
                    (best.empty() ? "; see tanren help" : "; nearest: " + best));
}

std::string config_markdown() {
  RunConfig config;
  std::string text =
      "# Config reference\n\nGenerated from `tanren/config/fields.h`; the same text as `tanren help`.\n"
      "A config is TOML; `--set key=value` overrides a key. Keys marked ∘ do not define the run: a\n"
      "run folder goes on with another value of them; ↑ may only grow.\n";
  std::string section;
  visit_config(config, [&](const std::string& key, auto& member, const FieldInfo& info) {
    const auto dot = key.rfind('.');
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      text += "\n## [" + section + "]\n\n| key | type | default | meaning |\n|---|---|---|---|\n";
    }
    const std::string value = toml_text(member);
    const char* mark = info.identity == Identity::free       ? " ∘"
                       : info.identity == Identity::may_grow ? " ↑"
                                                             : "";
    text += "| `" + key.substr(dot + 1) + "`" + mark + " | " + type_name(member) +
            (info.number_or_word ? " or a number" : "") + " | " +
            (value.empty() ? "not set" : "`" + value + "`") + " | " + info.help + " |\n";
  });
  return text;
}

}  // namespace tanren
