#include "tanren/config/describe.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/config/fields.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/config/synonyms.h"
#include "tanren/config/value_text.h"

namespace tanren {

std::vector<std::string> all_keys() {
  RunConfig config;
  std::vector<std::string> keys;
  visit_config(config,
               [&](const std::string& key, auto&, const FieldInfo&) { keys.push_back(key); });
  return keys;
}

namespace {

// Every key, and after a list of tables the keys of one table.
template <class F>
void each_described(F&& f) {
  RunConfig config;
  visit_config(config, [&](const std::string& key, auto& member, const FieldInfo& info) {
    f(key, key.rfind('.'), member, info);
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (is_table_list<Member>) {
      typename Member::value_type table;
      auto with_prefix = [&](const char* name, auto& part, const FieldInfo& part_info) {
        f(key + "." + name, key.rfind('.'), part, part_info);
      };
      fields(with_prefix, table);
    }
  });
}

// What a changed key means to a run that resumes.
struct Words {
  const char* mark;
  const char* sentence;
};

Words words_of(Identity identity) {
  switch (identity) {
    case Identity::defines: return {"", ""};
    case Identity::may_grow: return {" ↑", " May grow when a run goes on."};
    case Identity::on_request:
      return {" ±", " May change when a run goes on and --set asks for it."};
    case Identity::evaluates:
      return {" ◇",
              " May change when a run goes on, unless evaluations decide over it (plateau, "
              "best, early stop)."};
    case Identity::by_name:
      return {" /", " When a run goes on, only the last name must be the same."};
    case Identity::free: return {" ∘", " May change when a run goes on."};
  }
  return {"", ""};
}

// Escapes < and |: names such as cuda:<i> are not HTML.
std::string markdown_text(const std::string& help) {
  std::string text;
  for (const char c : help) text += c == '<' ? "&lt;" : c == '|' ? "&#124;" : std::string(1, c);
  return text;
}

}  // namespace

std::string help_text(const std::string& given) {
  const std::string asked = current_key(given);
  std::string text;
  each_described([&](const std::string& key, size_t, auto& member, const FieldInfo& info) {
    if (!asked.empty() && key != asked && key.rfind(asked + ".", 0) != 0) return;
    const std::string value = toml_text(member);
    text += key + " (" + type_text(member, info) + ", default " +
            (value.empty() ? "not set" : value) + ")\n    " + info.help;
    text += words_of(info.identity).sentence;
    text += "\n";
  });
  if (text.empty()) {
    const auto section = nearest_section(asked, all_keys());
    const auto more =
        synonym(asked) || section.empty() ? advice(asked, all_keys()) : "; nearest: " + section;
    throw ConfigError("[config] there is no key " + asked +
                      (asked.find('.') == std::string::npos ? more : advice(asked, all_keys())));
  }
  text.pop_back();
  return text;
}

std::string config_markdown() {
  std::string text =
      "# Config reference\n\nGenerated from `tanren/config/fields.h`; the same text as `tanren "
      "help`.\nA config is TOML; `--set key=value` overrides a key (texts need no quotes, `none` "
      "takes an\noptional number back). A path is relative to the config file, one of `--set` to "
      "the "
      "working folder.\n\nKeys marked ∘ do not define the run: a run folder goes on with another "
      "value of them. ↑ may only\ngrow. ± may change where `--set` asks for it at that start. ◇ "
      "may "
      "change where no\nevaluation decides over the run (plateau, best, early stop). Of a path "
      "marked / the last name defines\nthe run, its place does not.\n";
  std::string section;
  each_described([&](const std::string& key, size_t dot, auto& member, const FieldInfo& info) {
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      text += "\n## [" + section + "]\n\n| key | type | default | meaning |\n|---|---|---|---|\n";
    }
    const std::string value = toml_text(member);
    text += "| `" + key.substr(dot + 1) + "`" + words_of(info.identity).mark + " | " +
            type_text(member, info) + " | " + (value.empty() ? "not set" : "`" + value + "`") +
            " | " + markdown_text(info.help) + " |\n";
  });
  return text;
}

}  // namespace tanren
