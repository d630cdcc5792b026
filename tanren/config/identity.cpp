#include "tanren/config/identity.h"

#include "tanren/config/fields.h"
#include "tanren/config/value_text.h"

#include <map>

namespace tanren {

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
