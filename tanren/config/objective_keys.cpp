#include "tanren/config/objective_keys.h"

#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace tanren {

namespace {

constexpr std::string_view kObjectives = "objectives.";

void copy_value(const Field& from, const Field& to) {
  std::visit([&](auto* member) { *member = *std::get<decltype(member)>(from.member); }, to.member);
}

// The keys that an objective of kind `own` does not take from a run of another kind, because its
// kind does not read them.
template <typename Kind>
Keys keys_of_others(const std::vector<Kind>& kinds, const std::string& own,
                    const std::string& run) {
  const Kind* kind = find_kind(kinds, own);
  return own == run || kind == nullptr ? Keys() : unread_keys(kinds, *kind);
}

template <typename Options>
void inherit_section(const std::string& prefix, const std::set<std::string>& asked,
                     const Keys& of_others, Options run, Options& own) {
  Options plain;
  const auto values = fields_of(run), defaults = fields_of(plain), targets = fields_of(own);
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string& name = targets[i].key;
    if (asked.count(prefix + name) > 0) continue;
    const bool is_of_others =
        std::find(of_others.begin(), of_others.end(), name) != of_others.end();
    copy_value(is_of_others ? defaults[i] : values[i], targets[i]);
  }
}

}  // namespace

std::string objective_prefix(std::string_view key) {
  if (!key.starts_with(kObjectives)) return "";
  const std::string_view rest = key.substr(kObjectives.size());
  const size_t end =
      rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
  if (end == 0 || end == std::string_view::npos || rest[end] != '.') return "";
  return std::string(key.substr(0, kObjectives.size() + end + 1));
}

void add_objective(RunConfig& config, std::string_view key) {
  const std::string prefix = objective_prefix(key);
  if (prefix.empty()) return;
  config.objectives.try_emplace(
      prefix.substr(kObjectives.size(), prefix.size() - kObjectives.size() - 1));
}

void inherit(RunConfig& config) {
  for (auto& [name, own] : config.objectives) {
    const std::string prefix = std::string(kObjectives) + name + ".";
    const auto is_asked = [&](const char* key) { return config.asked.count(prefix + key) > 0; };
    if (!is_asked("every")) own.every.reset();
    if (!is_asked("weights")) own.weights.clear();
    const std::string optimizer =
        is_asked("optimizer.kind") ? own.optimizer.kind : config.optimizer.kind;
    const std::string schedule =
        is_asked("schedule.kind") ? own.schedule.kind : config.schedule.kind;
    inherit_section(prefix + "optimizer.", config.asked,
                    keys_of_others(optimizer_kinds(), optimizer, config.optimizer.kind),
                    config.optimizer, own.optimizer);
    inherit_section(prefix + "schedule.", config.asked,
                    keys_of_others(schedule_kinds(), schedule, config.schedule.kind),
                    config.schedule, own.schedule);
    inherit_section(prefix + "clip.", config.asked, {}, config.clip, own.clip);
    // Resets a key that another value of the objective makes meaningless.
    if (!is_asked("optimizer.layers") && own.optimizer.layer_decay == 1) {
      own.optimizer.layers.clear();
    }
    if (!is_asked("optimizer.nesterov") && own.optimizer.momentum == 0.0) {
      own.optimizer.nesterov.reset();
    }
  }
}

void keep_in_objectives(RunConfig& config, const std::string& key) {
  const size_t dot = key.find('.');
  const std::string section = key.substr(0, dot), name = key.substr(dot + 1);
  for (const auto& [objective, own] : config.objectives) {
    const std::string prefix = fmt::format("{}{}.", kObjectives, objective);
    if (config.asked.count(prefix + section + ".kind") == 0) continue;
    const OptimizerKind* optimizer = find_kind(optimizer_kinds(), own.optimizer.kind);
    const ScheduleKind* schedule = find_kind(schedule_kinds(), own.schedule.kind);
    const bool is_read =
        (section == "optimizer" && optimizer != nullptr && reads(*optimizer, name)) ||
        (section == "schedule" && schedule != nullptr && reads(*schedule, name));
    if (is_read) config.asked.insert(prefix + key);
  }
}

std::set<std::string> inherited_keys(const RunConfig& config) {
  if (config.objectives.empty()) return {};
  RunConfig as_is = config, inherited = config;
  inherit(inherited);
  const auto values = values_of(fields_of(inherited));
  std::set<std::string> keys;
  for (const Field& field : fields_of(as_is)) {
    if (objective_prefix(field.key).empty() || config.asked.count(field.key) > 0) continue;
    if (toml_text(field) == values.at(field.key)) keys.insert(field.key);
  }
  return keys;
}

}  // namespace tanren
