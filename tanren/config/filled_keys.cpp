#include "tanren/config/filled_keys.h"

#include "tanren/base/error.h"
#include "tanren/config/assign_node.h"
#include "tanren/config/fields.h"
#include "tanren/config/set_text.h"
#include "tanren/config/toml.h"
#include "tanren/config/value_text.h"

#include <map>
#include <type_traits>

namespace tanren {

namespace {

// Key → its value as TOML; "" if an optional key is not set.
std::map<std::string, std::string> texts_of(ModelOptions options) {
  std::map<std::string, std::string> texts;
  auto take = [&](const char* key, const auto& member, const FieldInfo&) {
    texts[key] = toml_text(member);
  };
  fields(take, options);
  return texts;
}

toml::table parse(std::string_view text, const std::string& source) {
  try {
    if (!has_deep_keys(text)) return toml::parse(text, source);
  } catch (const toml::parse_error&) {
  } catch (const TomlFault&) {
  }
  throw ConfigError("[config] " + source + " is no TOML; put the original back");
}

}  // namespace

std::string filled_keys(const ModelOptions& asked, const ModelOptions& filled) {
  const auto before = texts_of(asked);
  ModelOptions copy = filled;
  std::string text;
  auto write = [&](const char* key, const auto& member, const FieldInfo&) {
    const std::string value = toml_text(member);
    if (value == before.at(key) || value.empty()) return;
    text += std::string(key) + " = " + value + "\n";
  };
  fields(write, copy);
  return text.empty() ? "" : "[model]\n" + text;
}

ModelOptions with_filled_keys(ModelOptions asked, std::string_view text,
                              const std::string& source) {
  const toml::table table = parse(text, source);
  const auto defaults = texts_of(ModelOptions());
  const toml::table* model = table["model"].as_table();
  size_t found = 0;
  auto take = [&](const char* key, auto& member, const FieldInfo& info) {
    const toml::node* node = model != nullptr ? model->get(key) : nullptr;
    if (node == nullptr) return;
    if (toml_text(member) != defaults.at(key)) {
      ++found;
      return;
    }
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (!is_table_list<Member>) {
      if (assign(*node, member, info.number_or_word)) ++found;
    }
  };
  fields(take, asked);
  if (model == nullptr || found != model->size()) {
    throw ConfigError("[config] " + source + " is no table of model keys; put the original back");
  }
  return asked;
}

}  // namespace tanren
