#include "tanren/config/read_config.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/config/assign_node.h"
#include "tanren/config/fix_line.h"
#include "tanren/config/identity.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/config/resolve_path.h"
#include "tanren/config/set_text.h"
#include "tanren/config/set_value.h"
#include "tanren/config/synonyms.h"
#include "tanren/config/toml.h"
#include "tanren/config/validate.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// Where a value was written: "run.toml:12" or "--set run.steps=0".
struct Place {
  std::string name;
  bool is_file = true;
  toml::source_index line = 0;

  Place at(const toml::node& node) const { return {name, is_file, node.source().begin.line}; }
  std::string text() const { return is_file ? fmt::format("{}:{}", name, line) : name; }
};

// Reads the file and each --set into a config and gathers the problems, a line each.
class Reader {
 public:
  // Paths in the file are relative to `folder`; those of --set to the working folder.
  Reader(RunConfig& config, fs::path folder)
      : config_(config),
        folder_(std::move(folder)),
        fields_(fields_of(config)),
        keys_(keys_of(fields_)) {}

  void read(const toml::table& table, const std::string& source) {
    walk(table, "", {source});
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  // Drops keys of the file that have no meaning because of a value of --set.
  void drop_meaningless(const KnownKinds& known) {
    const RunConfig defaults;
    for (bool again = true; std::exchange(again, false);) {
      for (const auto& [key, because] : meaningless_keys(config_, known)) {
        if (typed_.count(key) > 0 || typed_.count(because) == 0) continue;
        keep_in_objectives(config_, key);
        take_keys(config_, defaults, {key});
        config_.asked.erase(key);
        log("[config] " + key + " of the file is left out: it has no meaning for " +
            typed_.at(because));
        again = true;
      }
    }
  }

  void set(const std::string& text) {
    const auto equals = text.find('=');
    const Place place{"--set " + one_line(text), false};
    if (equals == std::string::npos || equals == 0) {
      return report(place, "is no key=value; write --set batch.global_batch=64");
    }
    const std::string key = current_key(text.substr(0, equals));
    const std::string value = text.substr(equals + 1);
    typed_[key] = place.name;
    if (key.rfind("model.options.", 0) == 0) {
      typed_["model.options"] = place.name;
      config_.model.options[key.substr(14)] = value;
      config_.asked.insert("model.options");
      return;
    }
    if (take_weight(key, value, place)) return;
    if (value == "none" && take_back(key)) return;
    const auto parsed = parse_set_value(find_field(fields_, key), value).table;
    if (!parsed) return report(place, "the value is no TOML; quote texts");
    take(key, *parsed->get("v"), place);
  }

  // Adds what validate found, with the place where its key (the problem's first word) was written.
  void add_invalid(const std::vector<std::string>& found, const std::string& source) {
    for (const auto& problem : found) {
      const std::string key = problem.substr(0, problem.find_first_of(" ["));
      if (refused_.count(key) > 0) continue;
      const auto place = places_.find(key);
      report({place == places_.end() ? source : place->second, false}, problem);
    }
  }

  std::vector<std::string> problems() const {
    std::vector<std::string> lines;
    for (const auto& [line, text] : problems_) lines.push_back(text);
    return lines;
  }

 private:
  void report(const Place& place, const std::string& problem) {
    problems_.emplace_back(place.line, "[config] " + place.text() + ": " + problem);
  }

  // --set objectives.NAME.weights.TERM=value: one entry of the table. False for another key.
  bool take_weight(const std::string& key, const std::string& value, const Place& place) {
    const std::string table = objective_prefix(key) + "weights";
    if (!is_key(table) || !key.starts_with(table + ".")) return false;
    auto& weights = find_field(fields_, table)->as<std::map<std::string, double>>();
    const auto parsed = parse_set_value(find_field(fields_, key), value).table;
    if (!parsed || !assign(*parsed->get("v"), weights[key.substr(table.size() + 1)], false)) {
      report(place, key + " must be a number, not '" + one_line(value) + "'");
    }
    typed_[table] = places_[table] = place.text();
    config_.asked.insert(table);
    return true;
  }

  // --set key=none: unsets an optional key, as if it had not been given; a key of an objective has
  // the run's value again.
  bool take_back(const std::string& key) {
    const Field* field = find_field(fields_, key);
    if (field == nullptr) return false;
    // These keys may be unset although they are not optional: an objective's key then has the run's
    // value, and an empty run.max_time means no limit.
    const bool may_lack = !objective_prefix(key).empty() || key == "run.max_time";
    const auto reset = [=](auto* member) {
      constexpr bool kIsOptional = requires { member->reset(); };
      if (kIsOptional || may_lack) *member = std::remove_pointer_t<decltype(member)>();
      return kIsOptional || may_lack;
    };
    const bool taken = std::visit(reset, field->member);
    if (taken) config_.asked.erase(key);
    return taken;
  }

  void walk(const toml::table& table, const std::string& prefix, const Place& source) {
    for (const auto& [name, node] : table) {
      const std::string given = prefix + std::string(name.str()), key = current_key(given);
      const Place place = source.at(node);
      if (key != given && is_given(table, key)) {
        report(place, given + " is " + key + " by now, and both are given; keep " + key);
        continue;
      }
      const bool section = is_section(key);
      if (node.is_table() && section) {
        walk(*node.as_table(), key + ".", source);
      } else if (section) {
        const auto known = synonym(key, word_of(node));
        report(place, key + " is a section; write [" + key + "]" + (known ? ", or " + *known : ""));
      } else if (node.is_table() && !is_key(key)) {
        unknown_section(key, *node.as_table(), source, place);
      } else {
        take(key, node, place);
      }
    }
  }

  // A misspelt section is one problem. For a section of another trainer, each key is translated.
  void unknown_section(const std::string& key, const toml::table& table, const Place& source,
                       const Place& place) {
    if (key.starts_with("objectives.") && objective_prefix(key + ".").empty()) {
      return report(place, "[" + key +
                               "]: an objective that a config names has letters, digits, _ "
                               "and - in its name; rename it in the task");
    }
    const auto best = nearest_section(key, keys_);
    if (!best.empty() || table.empty()) {
      report(place, "unknown section [" + key + "]" +
                        (best.empty() ? "; see tanren help" : "; nearest: [" + best + "]"));
    } else {
      walk(table, key + ".", source);
    }
  }

  // Whether `table`, one section, contains the last part of `key`.
  static bool is_given(const toml::table& table, const std::string& key) {
    return table.contains(key.substr(key.rfind('.') + 1));
  }

  bool is_key(const std::string& key) const { return find_field(fields_, key) != nullptr; }
  bool is_section(const std::string& name) const {
    return name == "objectives" || objective_prefix(name + ".") == name + "." ||
           std::any_of(keys_.begin(), keys_.end(),
                       [&](const auto& key) { return key.rfind(name + ".", 0) == 0; });
  }

  // The second half of an error line about an unknown key.
  std::string advice_on(const std::string& key, const std::string& word) const {
    const std::string prefix = objective_prefix(key);
    const auto known = synonym(key, word);
    const bool is_of_objective = known && is_key(prefix + known->substr(0, known->find(' ')));
    return is_of_objective ? "; here it is " + prefix + *known : advice(key, keys_, word);
  }

  void take(const std::string& key, const toml::node& node, const Place& place) {
    const Field* field = find_field(fields_, key);
    if (field == nullptr) {
      return report(place, "unknown key " + key + advice_on(key, word_of(node)));
    }
    const bool fine =
        is_table_list(*field) ? read_tables(*field, node, place) : read_value(*field, node, place);
    const fs::path folder = place.is_file ? folder_ : fs::path();
    if (field->info.text == TextKind::file) resolve(field->as<std::string>(), folder);
    if (field->info.text == TextKind::file_or_name) {
      resolve_folder(field->as<std::string>(), folder);
    }
    if (!fine) refused_.insert(key);
    config_.asked.insert(key);
    places_[key] = place.text();
  }

  bool read_value(const Field& field, const toml::node& node, const Place& place) {
    if (assign(node, field)) return true;
    report(place, field.key + " must be " + type_text(field) + ", not " + shown(node));
    return false;
  }

  bool read_tables(const Field& list, const toml::node& node, const Place& place) {
    const auto* array = node.as_array();
    if (array == nullptr || (!array->empty() && !array->is_homogeneous<toml::table>())) {
      report(place, fmt::format("{} must be a list of tables, not {}; write [[{}]]", list.key,
                                shown(node), list.key));
      return false;
    }
    const size_t before = problems_.size();
    std::visit([](auto* member) { *member = std::remove_pointer_t<decltype(member)>(); },
               list.member);
    for (const auto& item : *array) read_table(*item.as_table(), list, place);
    return problems_.size() == before;
  }

  void read_table(const toml::table& table, const Field& list, const Place& place) {
    const std::vector<Field> fields = append_table(list);
    for (const auto& item : table) {
      const toml::node& node = item.second;
      const std::string key = list.key + "." + std::string(item.first.str());
      const Place here = place.at(node);
      if (const Field* field = find_field(fields, key)) {
        read_value(*field, node, here);
      } else {
        report(here, "unknown key " + key + "; one of " + join(keys_of(fields)));
      }
    }
  }

  static std::string word_of(const toml::node& node) {
    std::string word;
    if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
    assign(node, word, true);
    return word;
  }

  // The value on one short line.
  static std::string shown(const toml::node& node) {
    std::ostringstream stream;
    if (node.is_string()) {
      stream << "'" << word_of(node) << "'";
    } else {
      node.visit([&](const auto& value) { stream << value; });
    }
    std::string text = one_line(stream.str());
    if (text.size() <= 40) return text;
    size_t end = 40;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not inside a UTF-8 character
    return text.substr(0, end) + "…";
  }

  RunConfig& config_;
  const fs::path folder_;
  const std::vector<Field> fields_;  // of config_
  const std::vector<std::string> keys_;
  std::vector<std::pair<toml::source_index, std::string>> problems_;  // line (0: none), text
  std::map<std::string, std::string> places_;                         // key → where it was given
  std::set<std::string> refused_;                                     // keys of a wrong type
  std::map<std::string, std::string> typed_;                          // key → its --set, as typed
};

// Makes the entries of the objectives that the file or --set names, so that their keys are known.
void add_objectives(RunConfig& config, const toml::table& file,
                    const std::vector<std::string>& sets) {
  if (const auto* objectives = file["objectives"].as_table()) {
    for (const auto& [name, node] : *objectives) {
      const std::string prefix = "objectives." + std::string(name.str()) + ".";
      if (node.is_table() && objective_prefix(prefix) == prefix) add_objective(config, prefix);
    }
  }
  for (const auto& set : sets) add_objective(config, set.substr(0, set.find('=')));
}

// Null `known`: the config is not validated.
RunConfig parse(std::string_view text, const std::string& source, const fs::path& folder,
                const std::vector<std::string>& sets, const KnownKinds* known) {
  RunConfig config;
  toml::table table;
  if (has_deep_keys(text)) {
    throw ConfigError("[config] " + source + ": its keys are nested absurdly deep; fix the TOML");
  }
  try {
    table = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const std::string what = one_line(std::string(error.description()));
    const auto line = error.source().begin.line;
    throw ConfigError(
        fmt::format("[config] {}:{}: {}; {}", source, line, what, way_to_fix(text, line)));
  } catch (const TomlFault& fault) {
    throw ConfigError("[config] " + source + ": is no TOML (" + fault.what() + "); fix it");
  }
  add_objectives(config, table, sets);
  Reader reader(config, folder);
  reader.read(table, source);
  for (const auto& set : sets) reader.set(set);
  inherit(config);
  if (known != nullptr) reader.drop_meaningless(*known);
  if (known != nullptr) reader.add_invalid(validate(config, *known), source);
  if (!reader.problems().empty()) throw ConfigError(join(reader.problems(), "\n"));
  return config;
}

RunConfig read(const fs::path& file, const std::vector<std::string>& sets,
               const KnownKinds* known) {
  std::error_code error;
  if (fs::is_directory(file, error)) {
    throw ConfigError("[config] " + file.string() + " is a folder; give a config file");
  }
  if (!fs::exists(file, error)) {
    throw ConfigError("[config] " + file.string() +
                      " does not exist; give a config file or a run folder");
  }
  const std::string text = read_file(file);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos && sets.empty()) {
    throw ConfigError("[config] " + file.string() +
                      " is empty; examples/digits/run.toml is a start");
  }
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  RunConfig config = parse(text, file.string(), folder, sets, known);
  if (config.run.name.empty()) config.run.name = file.stem().string();
  return config;
}

}  // namespace

RunConfig parse_config(std::string_view text, const std::string& source, const fs::path& folder,
                       const std::vector<std::string>& sets, const KnownKinds& known) {
  return parse(text, source, folder, sets, &known);
}

RunConfig read_config(const fs::path& file, const std::vector<std::string>& sets,
                      const KnownKinds& known) {
  return read(file, sets, &known);
}

RunConfig read_recorded_config(const fs::path& file) { return read(file, {}, nullptr); }
RunConfig parse_recorded_config(std::string_view text, const std::string& source) {
  return parse(text, source, ".", {}, nullptr);
}

}  // namespace tanren
