#include "tanren/config/read_config.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/config/fields.h"
#include "tanren/config/synonyms.h"
#include "tanren/config/validate.h"
#include "tanren/config/value_text.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <type_traits>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// assign(node, member): true if the node has the member's type.
bool assign(const toml::node& node, std::string& member, bool number_or_word) {
  if (const auto* text = node.as_string()) {
    member = text->get();
    return true;
  }
  if (!number_or_word) return false;
  if (const auto* whole = node.as_integer()) {
    member = std::to_string(whole->get());
    return true;
  }
  if (const auto* number = node.as_floating_point()) {
    member = to_text(number->get());
    return true;
  }
  return false;
}

bool assign(const toml::node& node, bool& member, bool) {
  const auto* value = node.as_boolean();
  if (value != nullptr) member = value->get();
  return value != nullptr;
}

bool assign(const toml::node& node, int64_t& member, bool) {
  const auto* value = node.as_integer();
  if (value != nullptr) member = value->get();
  return value != nullptr;
}

bool assign(const toml::node& node, double& member, bool) {
  if (const auto* number = node.as_floating_point()) {
    member = number->get();
    return std::isfinite(member);
  }
  const auto* whole = node.as_integer();
  if (whole != nullptr) member = static_cast<double>(whole->get());
  return whole != nullptr;
}

template <typename T>
bool assign(const toml::node& node, std::optional<T>& member, bool flag) {
  T value{};
  if (!assign(node, value, flag)) return false;
  member = value;
  return true;
}

bool assign(const toml::node& node, GroupOptions& group, bool) {
  const auto* table = node.as_table();
  if (table == nullptr) return false;
  const toml::array* patterns = (*table)["parameters"].as_array();
  if (patterns == nullptr) return false;
  for (const auto& pattern : *patterns) {
    const auto* text = pattern.as_string();
    if (text == nullptr) return false;
    group.parameters.push_back(text->get());
  }
  size_t known = 1;
  const auto number = [&](const char* key, std::optional<double>& member) {
    const auto* value = table->get(key);
    if (value == nullptr) return true;
    ++known;
    return assign(*value, member, false);
  };
  const bool fine = number("learning_rate_scale", group.learning_rate_scale) &&
                    number("weight_decay", group.weight_decay);
  return fine && known == table->size();
}

template <typename T>
bool assign(const toml::node& node, std::vector<T>& member, bool) {
  const auto* array = node.as_array();
  if (array == nullptr) return false;
  std::vector<T> values;
  for (const auto& item : *array) {
    T value{};
    if (!assign(item, value, false)) return false;
    values.push_back(std::move(value));
  }
  member = std::move(values);
  return true;
}

bool assign(const toml::node& node, std::map<std::string, std::string>& member, bool) {
  const auto* table = node.as_table();
  if (table == nullptr) return false;
  for (const auto& [key, value] : *table) {
    std::string text;
    if (!assign(value, text, true)) {
      const auto* flag = value.as_boolean();
      if (flag == nullptr) return false;
      text = flag->get() ? "true" : "false";
    }
    member[std::string(key.str())] = text;
  }
  return true;
}

// Reads one source (the file or one --set) into a config and gathers its problems.
class Reader {
 public:
  Reader(RunConfig& config, std::vector<std::string>& problems)
      : config_(config), problems_(problems) {
    visit_config(config_, [&](const std::string& key, auto&, const FieldInfo&) { keys_.push_back(key); });
  }

  void read(const toml::table& table, const std::string& source) { walk(table, "", source); }

  void set(const std::string& text) {
    const auto equals = text.find('=');
    const std::string where = "--set " + text;
    if (equals == std::string::npos || equals == 0) {
      problems_.push_back("[config] " + where + ": is no key=value; write --set batch.global_batch=64");
      return;
    }
    std::string key = text.substr(0, equals), value = text.substr(equals + 1);
    if (key.rfind("model.options.", 0) == 0) {
      config_.model.options[key.substr(14)] = value;
      config_.asked.insert("model.options");
      return;
    }
    // A bare word is text; everything else is what TOML says it is.
    std::unique_ptr<toml::table> parsed = parse("v = " + value);
    if (!parsed || is_text(key)) parsed = parse("v = " + (quoted(value) ? value : toml_text(value)));
    if (parsed && parsed->size() == 1) {
      take(key, *parsed->get("v"), where);
    } else {
      problems_.push_back("[config] " + where + ": the value is not understood; quote texts");
    }
  }

  const std::vector<std::string>& keys() const { return keys_; }

 private:
  // Null where the text is no TOML.
  static std::unique_ptr<toml::table> parse(const std::string& text) {
    try {
      return std::make_unique<toml::table>(toml::parse(text));
    } catch (const toml::parse_error&) {
      return nullptr;
    }
  }

  static bool quoted(const std::string& value) {
    return value.size() > 1 && value.front() == '"' && value.back() == '"';
  }

  // Whether `key` is a plain text field, for which --set needs no quotes.
  bool is_text(const std::string& key) {
    bool text = false;
    visit_config(config_, [&](const std::string& name, auto& member, const FieldInfo& info) {
      using Member = std::remove_reference_t<decltype(member)>;
      if (name == key) text = std::is_same_v<Member, std::string> && !info.number_or_word;
    });
    return text;
  }

  void walk(const toml::table& table, const std::string& prefix, const std::string& source) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      const std::string where = source + ":" + std::to_string(node.source().begin.line);
      const bool is_section = is_prefix(key);
      if (node.is_table() && is_section) {
        walk(*node.as_table(), key + ".", source);
      } else if (is_section && !is_key(key)) {
        problems_.push_back("[config] " + where + ": " + key + " is a section; write [" + key + "]" +
                            advice(key));
      } else {
        take(key, node, where);
      }
    }
  }

  static std::string advice(const std::string& key) {
    const auto known = synonym(key);
    return known ? ", or " + *known : "";
  }

  bool is_key(const std::string& key) const {
    return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
  }
  bool is_prefix(const std::string& key) const {
    return std::any_of(keys_.begin(), keys_.end(),
                       [&](const auto& known) { return known.rfind(key + ".", 0) == 0; });
  }

  void take(const std::string& key, const toml::node& node, const std::string& where) {
    bool found = false;
    visit_config(config_, [&](const std::string& name, auto& member, const FieldInfo& info) {
      if (name != key) return;
      found = true;
      if (assign(node, member, info.number_or_word)) {
        config_.asked.insert(key);
        return;
      }
      problems_.push_back("[config] " + where + ": " + key + " must be " + type_name(member) +
                          (info.number_or_word ? " or a number" : "") + ", not " + shown(node));
    });
    if (!found) problems_.push_back(unknown(key, where));
  }

  static std::string shown(const toml::node& node) {
    std::ostringstream text;
    node.visit([&](const auto& value) { text << value; });
    std::string result = text.str();
    if (result.size() > 40) result = result.substr(0, 40) + "…";
    return result;
  }

  std::string unknown(const std::string& key, const std::string& where) const {
    std::string line = "[config] " + where + ": unknown key " + key;
    if (const auto known = synonym(key)) return line + "; here it is " + *known;
    const auto dot = key.rfind('.');
    const std::string last = dot == std::string::npos ? key : key.substr(dot + 1);
    std::string best = nearest(key, keys_);
    for (const auto& candidate : keys_) {  // the right name in the wrong section comes first
      if (candidate.size() > last.size() && candidate.ends_with("." + last)) best = candidate;
    }
    return line + (best.empty() ? "; see tanren help" : "; nearest: " + best);
  }

  RunConfig& config_;
  std::vector<std::string>& problems_;
  std::vector<std::string> keys_;
};

[[noreturn]] void fail(const std::vector<std::string>& problems) {
  throw ConfigError(join(problems, "\n"));
}

void resolve(std::string& path, const fs::path& folder) {
  if (!path.empty() && fs::path(path).is_relative()) {
    path = fs::absolute(folder / path).lexically_normal().string();
  }
}

}  // namespace

RunConfig parse_config(std::string_view text, const std::string& source, const fs::path& folder,
                       const std::vector<std::string>& sets,
                       const std::vector<std::string>& known_model_kinds) {
  RunConfig config;
  std::vector<std::string> problems;
  Reader reader(config, problems);
  try {
    reader.read(toml::parse(text, source), source);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    fail({"[config] " + source + ":" + std::to_string(error.source().begin.line) + ": " + what +
          "; mend the TOML"});
  }
  for (const auto& set : sets) reader.set(set);
  resolve(config.data.train.path, folder);
  resolve(config.data.eval.path, folder);
  for (auto& problem : validate(config, known_model_kinds)) {
    problems.push_back("[config] " + source + ": " + std::move(problem));
  }
  if (!problems.empty()) fail(problems);
  return config;
}

RunConfig read_config(const fs::path& file, const std::vector<std::string>& sets,
                      const std::vector<std::string>& known_model_kinds) {
  std::error_code error;
  if (!fs::exists(file, error)) {
    throw ConfigError("[config] " + file.string() +
                      " does not exist; give a config file or a run folder");
  }
  const std::string text = read_file(file);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos && sets.empty()) {
    throw ConfigError("[config] " + file.string() + " is empty; examples/digits/run.toml is a start");
  }
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  RunConfig config = parse_config(text, file.string(), folder, sets, known_model_kinds);
  if (config.run.name.empty()) config.run.name = file.stem().string();
  return config;
}

}  // namespace tanren
