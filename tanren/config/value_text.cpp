#include "tanren/config/value_text.h"

#include "tanren/base/text.h"
#include "tanren/config/objective_keys.h"

#include <iterator>

namespace tanren {

namespace {

// In the order of Member.
constexpr const char* kTypeNames[] = {"text",
                                      "true or false",
                                      "a whole number",
                                      "a number",
                                      "true or false",
                                      "a whole number",
                                      "a number",
                                      "a list of texts",
                                      "a list of whole numbers",
                                      "a list of numbers",
                                      "a table of plain values",
                                      "a table of numbers",
                                      "a list of tables",
                                      "a list of tables",
                                      "a list of tables"};

static_assert(std::size(kTypeNames) == std::variant_size_v<Member>);

using tanren::toml_text;  // the overloads below join these
std::string toml_text(int64_t value) { return to_text(value); }

std::string toml_text(double value) {
  std::string text = to_text(value);
  // A TOML float needs a point or an exponent to read back as one.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

template <typename T>
std::string toml_text(const std::optional<T>& value) {
  return value ? toml_text(*value) : "";
}

template <typename T>
std::string toml_text(const std::map<std::string, T>& table) {
  std::string text = "{";
  for (const auto& [key, value] : table) {
    text += (text.size() > 1 ? ", " : "") + toml_text(key) + " = " + toml_text(value);
  }
  return text + "}";
}

std::string table_text(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) {
    const std::string value = toml_text(field);
    if (!value.empty()) text += (text.empty() ? "" : ", ") + field.key + " = " + value;
  }
  return "{" + text + "}";
}
std::string toml_text(GroupOptions group) { return table_text(fields_of(group)); }
std::string toml_text(UnfreezeOptions unfreeze) { return table_text(fields_of(unfreeze)); }
std::string toml_text(DimensionOptions dimension) { return table_text(fields_of(dimension)); }

template <typename T>
std::string toml_text(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + toml_text(values[i]);
  return text + "]";
}

}  // namespace

std::string toml_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (code < 0x20 || code == 0x7f) {  // TOML requires escaped control characters
      constexpr char kHex[] = "0123456789ABCDEF";
      text += {'\\', 'u', '0', '0', kHex[code / 16], kHex[code % 16]};
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string toml_text(const Field& field) {
  return std::visit([](const auto* member) { return toml_text(*member); }, field.member);
}

std::map<std::string, std::string> values_of(const std::vector<Field>& fields) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields) values[field.key] = toml_text(field);
  return values;
}

std::map<std::string, std::string> values_of(const RunConfig& config) {
  RunConfig copy = config;
  auto values = values_of(fields_of(copy));
  for (const std::string& key : inherited_keys(config)) values.erase(key);
  return values;
}

std::string type_text(const Field& field) {
  const char* more = field.info.text != TextKind::number_or_word ? ""
                     : field.is<std::string>()                   ? " or a number"
                                                                 : " or numbers";
  return std::string(kTypeNames[field.member.index()]) + more;
}

}  // namespace tanren
