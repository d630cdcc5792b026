#include "tanren/config/identity.h"

#include "tanren/config/kinds.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <string_view>

namespace tanren {

namespace {

// Keys and sections that may differ between ranks: they change no number and no exchange between
// ranks.
constexpr std::string_view kOwnOfARank[] = {"run.name",
                                            "run.device",
                                            "run.threads",
                                            "batch.microbatch",
                                            "data.workers",
                                            "data.prefetch",
                                            "memory.",
                                            "metrics.",
                                            "parallel.devices",
                                            "checkpoint.keep",
                                            "parallel.rendezvous",
                                            "generate."};

// Paths may differ, too: ranks compare the data itself, and weights come from rank 0.
bool is_own_of_a_rank(const Field& field) {
  const TextKind text = field.info.text;
  if (text == TextKind::file || text == TextKind::file_or_name) return true;
  const std::string_view key = field.key;
  return std::any_of(std::begin(kOwnOfARank), std::end(kOwnOfARank), [&](std::string_view own) {
    return own.back() == '.' ? key.substr(0, own.size()) == own : key == own;
  });
}

std::string shown(const std::string& text) { return text.empty() ? "not set" : text; }

// The last name of a path, or of "owner/name", as TOML text.
std::string_view last_name(std::string_view text) {
  std::string_view path = text.substr(1, text.size() - 2);  // between the quotes
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

// Both are counts as TOML text, empty if not set.
bool has_grown(const std::string& before, const std::string& now) {
  return !before.empty() && !now.empty() && std::stoll(now) > std::stoll(before);
}

// Whether a change on request is allowed. Changes to or from fp64 are not, because parameters in
// fp64 differ from those in fp32.
bool may_change(const FieldInfo& info, const std::string& key, const std::string& before,
                const std::string& now) {
  if (info.identity != Identity::on_request) return false;
  const auto is_wide = [](const std::string& text) { return text == "\"fp64\""; };
  return key != "precision.mode" || (!is_wide(before) && !is_wide(now));
}

}  // namespace

std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now,
                                        const std::set<std::string>& requested) {
  const auto values = values_of(before);
  const bool are_judged = evaluations_decide(now);
  RunConfig copy = now;
  std::vector<std::string> differing;
  for (const auto& field : fields_of(copy)) {
    const auto& [key, member, info] = field;
    const std::string value = toml_text(field);
    const std::string& old = values.at(key);
    if (value == old || info.identity == Identity::free) continue;
    if (info.identity == Identity::evaluates && !are_judged) continue;
    if (info.identity == Identity::may_grow && has_grown(old, value)) continue;
    if (info.identity == Identity::by_name && last_name(value) == last_name(old)) continue;
    if (requested.count(key) > 0 && may_change(info, key, old, value)) continue;
    differing.push_back(key + ": " + shown(old) + " → " + shown(value));
  }
  return differing;
}

std::vector<KeyChange> changes_on_request(const RunConfig& before, const RunConfig& now) {
  const auto values = values_of(before);
  RunConfig copy = now;
  std::vector<KeyChange> changes;
  for (const Field& field : fields_of(copy)) {
    const std::string value = toml_text(field);
    const std::string& old = values.at(field.key);
    if (value == old || !may_change(field.info, field.key, old, value)) continue;
    changes.push_back({field.key, shown(old), shown(value)});
  }
  return changes;
}

void take_keys(RunConfig& config, const RunConfig& from, const std::vector<std::string>& keys) {
  RunConfig source = from;
  const auto values = fields_of(source), targets = fields_of(config);
  for (const std::string& key : keys) {
    const Field* target = find_field(targets, key);
    if (target == nullptr) continue;
    const Member& value = find_field(values, key)->member;
    std::visit([&](auto* member) { *member = *std::get<decltype(member)>(value); }, target->member);
  }
}

bool evaluations_decide(const RunConfig& config) {
  return reads_evaluations(config.schedule) || config.checkpoint.best > 0 ||
         config.early_stop.patience > 0;
}

std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<std::pair<std::string, std::string>> values;
  for (const Field& field : fields_of(copy)) {
    if (!is_own_of_a_rank(field)) values.emplace_back(field.key, toml_text(field));
  }
  return values;
}

std::set<std::string> changed_keys(const RunConfig& config) {
  const auto defaults = values_of(RunConfig());
  std::set<std::string> changed;
  for (const auto& [key, value] : values_of(config)) {
    if (value != defaults.at(key)) changed.insert(key);
  }
  return changed;
}

}  // namespace tanren
