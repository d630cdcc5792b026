#include "tanren/config/identity.h"

#include "tanren/config/fields.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace tanren {

namespace {

// Keys and sections that may differ over ranks: they change no number and no exchange between them.
constexpr std::array<std::string_view, 15> kOwnOfARank = {
    "run.name",         "run.device",     "run.threads",      "batch.microbatch",
    "data.train.path",  "data.eval.path", "data.workers",     "data.prefetch",
    "memory.",          "metrics.",       "parallel.devices", "checkpoint.keep",
    "parallel.meeting", "generate.",      "model.init_from"};

bool is_own_of_a_rank(std::string_view key) {
  return std::any_of(kOwnOfARank.begin(), kOwnOfARank.end(), [&](std::string_view own) {
    return own.back() == '.' ? key.substr(0, own.size()) == own : key == own;
  });
}

}  // namespace

std::vector<std::string> differing_keys(const RunConfig& before, const RunConfig& now) {
  RunConfig one = before, other = now;
  std::map<std::string, std::string> values;
  visit_config(one, [&](const std::string& key, auto& member, const FieldInfo&) {
    values[key] = toml_text(member);
  });
  std::vector<std::string> differing;
  visit_config(other, [&](const std::string& key, auto& member, const FieldInfo& info) {
    const std::string value = toml_text(member);
    if (value == values[key] || info.identity == Identity::free) return;
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::optional<int64_t>>) {
      const bool grew = member && !values[key].empty() && *member > std::stoll(values[key]);
      if (info.identity == Identity::may_grow && grew) return;
    }
    const auto shown = [](const std::string& text) { return text.empty() ? "not set" : text; };
    differing.push_back(key + ": " + shown(values[key]) + " → " + shown(value));
  });
  return differing;
}

std::vector<std::pair<std::string, std::string>> values_of_all_ranks(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<std::pair<std::string, std::string>> values;
  visit_config(copy, [&](const std::string& key, auto& member, const FieldInfo&) {
    if (!is_own_of_a_rank(key)) values.emplace_back(key, toml_text(member));
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
