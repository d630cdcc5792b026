#include "tanren/config/identity.h"

#include "tanren/config/kinds.h"
#include "tanren/config/levels.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tanren {

namespace {

// Keys and sections that may differ between ranks: they change no number and no exchange between
// ranks.
constexpr std::string_view kOwnOfARank[] = {
    "run.name",        "run.device",          "run.threads", "run.debug", "batch.microbatch",
    "data.workers",    "data.prefetch",       "memory.",     "metrics.",  "parallel.devices",
    "checkpoint.keep", "parallel.rendezvous", "generate.",   "sweep."};

// Keys that must also be equal on all ranks if the run has stages, because each rank predicts what
// all stages hold.
bool predicts_stages(const Field& field) {
  return field.key == "memory.recompute" || field.key == "memory.offload";
}

// Whether ranks may have different values of the key. Paths may differ, because ranks compare the
// data itself. Weights come from rank 0; with stages, ranks compare them.
bool is_own_of_a_rank(const Field& field) {
  const TextKind text = field.info.text;
  if (text == TextKind::file || text == TextKind::file_or_name) return true;
  const std::string_view key = field.key;
  return std::any_of(std::begin(kOwnOfARank), std::end(kOwnOfARank), [&](std::string_view own) {
    return own.back() == '.' ? key.substr(0, own.size()) == own : key == own;
  });
}

std::string shown(const std::string& text) { return text.empty() ? "not set" : text; }

// Cuts the last name off a path, or off "owner/name".
std::string_view take_last_name(std::string_view& path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string_view name = path.substr(slash + 1);
  path = slash == std::string_view::npos ? "" : path.substr(0, slash);
  return name;
}

// A path as TOML text, without its quotes. Empty if there is none.
std::string_view unquoted(std::string_view text) {
  return text.empty() ? text : text.substr(1, text.size() - 2);
}

// Whether the values of a key by_name, as TOML text, name the same.
bool is_same_name(const std::string& key, std::string_view before, std::string_view now) {
  before = unquoted(before);
  now = unquoted(now);
  if (key == "run.fork_from") return is_same_source(std::string(before), std::string(now));
  return take_last_name(before) == take_last_name(now);
}

// The names of a run folder and of a step folder in it.
struct Source {
  std::string_view run, step;  // step: empty if the run folder is named
};

Source source_of(std::string_view path) {
  const std::string_view name = take_last_name(path);
  std::string_view above = path;
  const bool is_step = name.starts_with("step-") && take_last_name(above) == "checkpoints";
  if (!is_step) return {name, ""};
  return {take_last_name(above), name};
}

// Both are counts as TOML text, empty if not set.
bool has_grown(const std::string& before, const std::string& now) {
  return !before.empty() && !now.empty() && std::stoll(now) > std::stoll(before);
}

// Whether a change on request to `config` is allowed. Changes to or from fp64 are refused, because
// parameters in fp64 differ from those in fp32. Changes of the mode are also refused if the
// optimizer's state is stored in its type.
bool may_change(const FieldInfo& info, const std::string& key, const std::string& before,
                const std::string& now, const RunConfig& config) {
  if (info.identity != Identity::on_request) return false;
  if (key != "precision.mode") return true;
  const auto is_wide = [](const std::string& text) { return text == "\"fp64\""; };
  const bool stores_state =
      has_narrow_weights(config.precision) && !properties_of(config.precision).master_weights;
  return !is_wide(before) && !is_wide(now) && !stores_state;
}

// A key whose values differ. `before` and `now` are TOML text; empty: the key is not set, or an
// objective has the run's value.
struct Difference {
  std::string key;
  FieldInfo info;
  std::string before, now;
};

// The differences, in the order of the keys. Keys of objectives that only `before` has come last.
std::vector<Difference> differences(const RunConfig& before, const RunConfig& now) {
  RunConfig old_copy = before, copy = now;
  const auto old_values = values_of(before), values = values_of(now);
  const auto text_of = [](const auto& texts, const std::string& key) {
    const auto found = texts.find(key);
    return found == texts.end() ? std::string() : found->second;
  };
  std::vector<Difference> found;
  const auto compare = [&](const Field& field) {
    std::string old = text_of(old_values, field.key), value = text_of(values, field.key);
    if (old == value) return;
    found.push_back({field.key, field.info, std::move(old), std::move(value)});
  };
  const auto fields = fields_of(copy);
  for (const Field& field : fields) compare(field);
  for (const Field& field : fields_of(old_copy)) {
    if (find_field(fields, field.key) == nullptr) compare(field);
  }
  return found;
}

// Marks the own keys of objectives as asked for, so that inherit() keeps the objectives that a
// program made itself.
void claim_own_keys(RunConfig& config) {
  const auto inherited = inherited_keys(config);
  for (const Field& field : fields_of(config)) {
    const bool is_own = !objective_prefix(field.key).empty() && inherited.count(field.key) == 0;
    if (is_own) config.asked.insert(field.key);
  }
}

}  // namespace

std::vector<KeyChange> defining_changes(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested) {
  const bool are_judged = evaluations_decide(now);
  std::vector<KeyChange> differing;
  for (const auto& [key, info, old, value] : differences(before, now)) {
    if (info.identity == Identity::free) continue;
    if (info.identity == Identity::evaluates && !are_judged) continue;
    if (info.identity == Identity::may_grow && has_grown(old, value)) continue;
    if (info.identity == Identity::by_name && is_same_name(key, old, value)) continue;
    if (requested.count(key) > 0 && may_change(info, key, old, value, now)) continue;
    differing.push_back({key, shown(old), shown(value)});
  }
  return differing;
}

std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested) {
  std::vector<std::string> lines;
  for (const auto& [key, old, value] : defining_changes(before, now, requested)) {
    lines.push_back(key + ": " + old + " → " + value);
  }
  return lines;
}

std::vector<KeyChange> all_changes(const RunConfig& before, const RunConfig& now) {
  std::vector<KeyChange> changes;
  for (const auto& [key, info, old, value] : differences(before, now)) {
    changes.push_back({key, shown(old), shown(value)});
  }
  return changes;
}

std::vector<KeyChange> changes_on_request(const RunConfig& before, const RunConfig& now) {
  std::vector<KeyChange> changes;
  for (const auto& [key, info, old, value] : differences(before, now)) {
    if (may_change(info, key, old, value, now)) changes.push_back({key, shown(old), shown(value)});
  }
  return changes;
}

void take_keys(RunConfig& config, const RunConfig& from, const std::vector<std::string>& keys) {
  claim_own_keys(config);
  for (const std::string& key : keys) add_objective(config, key);
  RunConfig source = from;
  const auto inherited = inherited_keys(from);
  const auto values = fields_of(source), targets = fields_of(config);
  for (const std::string& key : keys) {
    const Field* target = find_field(targets, key);
    if (target == nullptr) continue;
    const Field* value = find_field(values, key);
    const bool is_of_objective = !objective_prefix(key).empty();
    if (is_of_objective && (value == nullptr || inherited.count(key) > 0)) {
      config.asked.erase(key);  // so that it has the run's value below
      continue;
    }
    std::visit([&](auto* member) { *member = *std::get<decltype(member)>(value->member); },
               target->member);
    if (is_of_objective) config.asked.insert(key);
  }
  inherit(config);
}

bool is_same_source(const std::string& before, const std::string& now) {
  const Source old = source_of(before), asked = source_of(now);
  return old.run == asked.run && (asked.step.empty() || old.step == asked.step);
}

bool evaluations_decide(const RunConfig& config) {
  return reads_evaluations(config) || config.checkpoint.best > 0 || config.early_stop.patience > 0;
}

std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<std::pair<std::string, std::string>> values, of_stages;
  const auto inherited = inherited_keys(config);
  for (const Field& field : fields_of(copy)) {
    if (inherited.count(field.key) > 0) continue;
    if (!is_own_of_a_rank(field)) {
      values.emplace_back(field.key, toml_text(field));
    } else if (config.parallel.pipeline > 1 && predicts_stages(field)) {
      of_stages.emplace_back(field.key, toml_text(field));
    }
  }
  // These follow parallel.pipeline, so that ranks that differ in it get that error.
  values.insert(values.end(), of_stages.begin(), of_stages.end());
  return values;
}

std::set<std::string> changed_keys(const RunConfig& config) {
  const auto defaults = values_of(RunConfig());
  std::set<std::string> changed;
  for (const auto& [key, value] : values_of(config)) {
    const auto plain = defaults.find(key);
    if (plain == defaults.end() || value != plain->second) changed.insert(key);
  }
  return changed;
}

}  // namespace tanren
