#include "tanren/config/describe.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/config/synonyms.h"
#include "tanren/config/value_text.h"

#include <string_view>

namespace tanren {

std::vector<std::string> all_keys() {
  RunConfig config;
  return keys_of(fields_of(config));
}

std::vector<std::string> objective_keys() {
  constexpr std::string_view kPrefix = "objectives.NAME.";
  RunConfig config;
  config.objectives.try_emplace("NAME");
  std::vector<std::string> keys;
  for (const std::string& key : keys_of(fields_of(config))) {
    if (key.starts_with(kPrefix)) keys.push_back(key.substr(kPrefix.size()));
  }
  return keys;
}

namespace {

struct Description {
  std::string section, name, type, value;
  FieldInfo info;
};

constexpr std::string_view kObjective = "objectives.NAME";

// The sections that an objective may have of its own. Each is described as one key.
struct OwnSection {
  const char *name, *help;
};
constexpr OwnSection kOwnSections[] = {
    {"optimizer",
     "Keys of [optimizer] for this objective alone, in a table [objectives.NAME.optimizer] or by "
     "--set objectives.NAME.optimizer.KEY. Other keys have the run's value (if kind differs from "
     "the run's: only those that this kind reads); --set to none restores it. When a run resumes, "
     "a key may change as in [optimizer]."},
    {"schedule",
     "Keys of [schedule], in the same way. The schedule counts the objective's own updates, which "
     "are the run's steps / every."},
    {"clip", "Keys of [clip], in the same way."}};

// Every key. A list of tables is followed by the keys of one table. The keys that an objective
// shares with the run are described once.
std::vector<Description> descriptions() {
  RunConfig config;
  config.objectives.try_emplace("NAME");
  std::vector<Description> found;
  for (const Field& field : fields_of(config)) {
    const std::string section = field.key.substr(0, field.key.rfind('.'));
    if (section.starts_with(kObjective) && section != kObjective) continue;
    const auto describe = [&](const Field& part) {
      const std::string value = toml_text(part);
      found.push_back({section, part.key.substr(section.size() + 1), type_text(part),
                       value.empty() ? "not set" : value, part.info});
    };
    describe(field);
    for (const Field& part : append_table(field)) describe(part);
    if (field.key != std::string(kObjective) + ".weights") continue;
    for (const auto& [name, help] : kOwnSections) {
      found.push_back({section, name, "a table", "not set", {Identity::defines, help}});
    }
  }
  return found;
}

// The key that has the description of `key`: that of an objective NAME, or of the run's section.
std::string described_key(const std::string& key) {
  const std::string prefix = objective_prefix(key + ".");
  if (prefix.empty()) return key;
  std::string rest = key.size() < prefix.size() ? "" : key.substr(prefix.size());
  if (rest.find('.') != std::string::npos) return rest;
  return std::string(kObjective) + (rest.empty() ? "" : "." + rest);
}

// What a changed key means to a run that resumes, and to a fork.
struct Words {
  const char* mark;
  const char* sentence;
  const char *resumed, *forked;  // for the table of changes
};

Words words_of(Identity identity) {
  switch (identity) {
    case Identity::defines:
      return {"", "", "may not change", "may change, if the model keeps its tensors"};
    case Identity::may_grow:
      return {" ↑", " May grow when a run resumes.", "may grow",
              "may change, if the end is still ahead"};
    case Identity::on_request:
      return {" ±", " May change when a run resumes and --set asks for it.",
              "may change if `--set` asks for it (precision: not to or from fp64)", "may change"};
    case Identity::evaluates:
      return {" ◇",
              " May change when a run resumes, unless evaluations affect the run (plateau, "
              "best, early stop).",
              "may change, unless evaluations affect the run", "may change"};
    case Identity::by_name:
      return {" /", " When a run resumes, only the last name must be the same.",
              "the place may change, the last name may not", "may change; `init_from` is left out"};
    case Identity::free:
      return {" ∘", " May change when a run resumes.", "may change", "may change"};
  }
  return {};
}

// The keys of one kind as a cell of the table. A section of which most keys are of that kind is one
// entry, with its exceptions.
std::string keys_cell(const std::vector<Description>& all, Identity identity) {
  if (identity == Identity::defines) return "every other key";
  std::vector<std::string> entries;
  std::string last;  // a section that is one entry
  for (const Description& one : all) {
    if (one.info.identity != identity || one.section == last) continue;
    std::vector<std::string> others;
    int64_t same = 0;
    for (const Description& other : all) {
      if (other.section != one.section) continue;
      if (other.info.identity == identity) ++same;
      if (other.info.identity != identity) others.push_back("`" + other.name + "`");
    }
    const bool is_section = same > std::ssize(others);
    if (is_section) last = one.section;
    std::string entry = "`" + one.section + "." + (is_section ? "*" : one.name) + "`";
    if (is_section && !others.empty()) entry += " (not " + join(others) + ")";
    entries.push_back(std::move(entry));
  }
  return std::string(words_of(identity).mark).substr(1) + " " + join(entries);
}

// Escapes < and |: names such as cuda:<i> are not HTML.
std::string markdown_text(const std::string& help) {
  std::string text;
  for (const char c : help) text += c == '<' ? "&lt;" : c == '|' ? "&#124;" : std::string(1, c);
  return text;
}

}  // namespace

std::string help_text(const std::string& given) {
  const std::string asked = described_key(current_key(given));
  std::string text;
  for (const auto& [section, name, type, value, info] : descriptions()) {
    const std::string key = section + "." + name;
    if (!asked.empty() && key != asked && !key.starts_with(asked + ".")) continue;
    text += fmt::format("{} ({}, default {})\n    {}{}\n", key, type, value, info.help,
                        words_of(info.identity).sentence);
  }
  if (text.empty()) {
    std::vector<std::string> keys;
    for (const auto& known : descriptions()) keys.push_back(known.section + "." + known.name);
    const auto section = nearest_section(asked, keys);
    const auto more =
        synonym(asked) || section.empty() ? advice(asked, keys) : "; nearest: " + section;
    throw ConfigError("[config] there is no key " + asked +
                      (asked.find('.') == std::string::npos ? more : advice(asked, keys)));
  }
  text.pop_back();
  return text;
}

std::string changes_markdown() {
  const auto all = descriptions();
  std::string text = "| Keys | A run that resumes | A fork |\n|---|---|---|\n";
  for (const Identity identity : {Identity::free, Identity::may_grow, Identity::on_request,
                                  Identity::evaluates, Identity::by_name, Identity::defines}) {
    const Words words = words_of(identity);
    text +=
        fmt::format("| {} | {} | {} |\n", keys_cell(all, identity), words.resumed, words.forked);
  }
  return text;
}

std::string config_markdown() {
  std::string text =
      "# Config reference\n\nGenerated from `tanren/config/sections`; `tanren help` prints the "
      "same text.\nA config is TOML. `--set key=value` overrides a key; texts need no quotes, and "
      "`none` removes an\noptional value. A path in the config file is relative to that file, one "
      "in `--set` to the working folder.\n\nThe mark of a key says whether it may change when a "
      "run resumes. ∘: it may. ↑: it may only grow. ±: it may\nif `--set` asks for it at that "
      "start. ◇: it may, unless evaluations affect the run (plateau, best, early\nstop). /: the "
      "place of the path may change, its last name may not. No mark: it may not change.\n";
  std::string last;
  for (const auto& [section, name, type, value, info] : descriptions()) {
    if (section != last) {
      last = section;
      text += "\n## [" + section + "]\n\n| key | type | default | meaning |\n|---|---|---|---|\n";
    }
    text += fmt::format("| `{}`{} | {} | {} | {} |\n", name, words_of(info.identity).mark, type,
                        value == "not set" ? value : "`" + value + "`", markdown_text(info.help));
  }
  return text;
}

}  // namespace tanren
