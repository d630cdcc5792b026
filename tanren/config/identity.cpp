#include "tanren/config/identity.h"

#include "tanren/config/fields.h"
#include "tanren/config/kinds.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace tanren {

namespace {

// Keys and sections that may differ between ranks: they change no number and no exchange between
// ranks.
constexpr std::array<std::string_view, 12> kOwnOfARank = {"run.name",
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
bool is_own_of_a_rank(std::string_view key, const FieldInfo& info) {
  if (info.path != PathKind::none) return true;
  return std::any_of(kOwnOfARank.begin(), kOwnOfARank.end(), [&](std::string_view own) {
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
  RunConfig one = before, other = now;
  std::map<std::string, std::string> values;
  visit_config(one, [&](const std::string& key, auto& member, const FieldInfo&) {
    values[key] = toml_text(member);
  });
  const bool are_judged = evaluations_decide(now);
  std::vector<std::string> differing;
  visit_config(other, [&](const std::string& key, auto& member, const FieldInfo& info) {
    const std::string value = toml_text(member);
    if (value == values[key] || info.identity == Identity::free) return;
    if (info.identity == Identity::evaluates && !are_judged) return;
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::optional<int64_t>>) {
      const bool grew = member && !values[key].empty() && *member > std::stoll(values[key]);
      if (info.identity == Identity::may_grow && grew) return;
    }
    if constexpr (std::is_same_v<Member, std::string>) {
      if (info.identity == Identity::by_name && last_name(value) == last_name(values[key])) return;
    }
    if (requested.count(key) > 0 && may_change(info, key, values[key], value)) return;
    differing.push_back(key + ": " + shown(values[key]) + " → " + shown(value));
  });
  return differing;
}

std::vector<KeyChange> changes_on_request(const RunConfig& before, const RunConfig& now) {
  RunConfig one = before, other = now;
  std::map<std::string, std::string> values;
  visit_config(one, [&](const std::string& key, auto& member, const FieldInfo&) {
    values[key] = toml_text(member);
  });
  std::vector<KeyChange> changes;
  visit_config(other, [&](const std::string& key, auto& member, const FieldInfo& info) {
    const std::string value = toml_text(member);
    if (value == values[key] || !may_change(info, key, values[key], value)) return;
    changes.push_back({key, shown(values[key]), shown(value)});
  });
  return changes;
}

void take_keys(RunConfig& config, const RunConfig& from, const std::vector<std::string>& keys) {
  RunConfig source = from;
  for (const std::string& wanted : keys) {
    visit_config(source, [&](const std::string& key, auto& value, const FieldInfo&) {
      if (key != wanted) return;
      visit_config(config, [&](const std::string& name, auto& member, const FieldInfo&) {
        if constexpr (std::is_same_v<decltype(member), decltype(value)>) {
          if (name == wanted) member = value;
        }
      });
    });
  }
}

bool evaluations_decide(const RunConfig& config) {
  return reads_evaluations(config.schedule) || config.checkpoint.best > 0 ||
         config.early_stop.patience > 0;
}

std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<std::pair<std::string, std::string>> values;
  visit_config(copy, [&](const std::string& key, auto& member, const FieldInfo& info) {
    if (!is_own_of_a_rank(key, info)) values.emplace_back(key, toml_text(member));
  });
  return values;
}

std::set<std::string> changed_keys(const RunConfig& config) {
  RunConfig defaults, copy = config;
  std::map<std::string, std::string> values;
  visit_config(defaults, [&](const std::string& key, auto& member, const FieldInfo&) {
    values[key] = toml_text(member);
  });
  std::set<std::string> changed;
  visit_config(copy, [&](const std::string& key, auto& member, const FieldInfo&) {
    if (toml_text(member) != values[key]) changed.insert(key);
  });
  return changed;
}

}  // namespace tanren
