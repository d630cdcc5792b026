#include "tanren/config/filled_keys.h"

#include "tanren/base/error.h"
#include "tanren/config/assign_node.h"
#include "tanren/config/set_text.h"
#include "tanren/config/toml.h"
#include "tanren/config/value_text.h"

namespace tanren {

namespace {

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
  ModelOptions before = asked, copy = filled;
  const auto values = values_of(fields_of(before));
  std::string text;
  for (const Field& field : fields_of(copy)) {
    const std::string value = toml_text(field);
    if (value == values.at(field.key) || value.empty()) continue;
    text += field.key + " = " + value + "\n";
  }
  return text.empty() ? "" : "[model]\n" + text;
}

ModelOptions with_filled_keys(ModelOptions asked, std::string_view text,
                              const std::string& source) {
  const toml::table table = parse(text, source);
  ModelOptions plain;
  const auto defaults = values_of(fields_of(plain));
  const toml::table* model = table["model"].as_table();
  size_t found = 0;
  for (const Field& field : fields_of(asked)) {
    const toml::node* node = model != nullptr ? model->get(field.key) : nullptr;
    if (node == nullptr) continue;
    if (toml_text(field) != defaults.at(field.key) || assign(*node, field)) ++found;
  }
  if (model == nullptr || found != model->size()) {
    throw ConfigError("[config] " + source + " is no table of model keys; put the original back");
  }
  return asked;
}

}  // namespace tanren
