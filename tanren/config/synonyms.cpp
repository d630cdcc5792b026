#include "tanren/config/synonyms.h"

#include "tanren/base/names.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

std::string_view last_part(std::string_view key) {
  const auto dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

// The key of `keys` that people mean by `key`; empty if none is close.
std::string nearest_key(const std::string& key, const std::vector<std::string>& keys) {
  constexpr size_t kTelling = 4;  // letters: shorter names are close to nearly every name
  const std::string last(last_part(key));
  const std::string prefix = key.substr(0, key.size() - last.size());
  std::vector<std::string> same_name, in_section, last_parts, sharing;
  for (const auto& known : keys) {
    const std::string name(last_part(known));
    last_parts.push_back(name);
    if (name == last) same_name.push_back(known);
    if (known != prefix + name) continue;
    in_section.push_back(name);
    if (name == last) return known;
    const bool contains =
        name.find(last) != std::string::npos || last.find(name) != std::string::npos;
    if (contains && std::min(name.size(), last.size()) >= kTelling) sharing.push_back(name);
  }
  const auto closest = [](const std::string& asked, const std::vector<std::string>& names) {
    const auto best = nearest(asked, names);
    return best.empty() && !names.empty() ? names.front() : best;
  };
  // The right name in another section, a partial name in this section, or both.
  const auto elsewhere = closest(key, same_name);
  const auto here = sharing.empty() ? "" : prefix + closest(last, sharing);
  if (!elsewhere.empty() && !here.empty()) return here + " or " + elsewhere;
  if (!elsewhere.empty() || !here.empty()) return elsewhere + here;
  // A typing error: at equal distance, names in its own section come first.
  if (last.size() < kTelling) last_parts = in_section;
  const auto best = nearest(last, {nearest(last, in_section), nearest(last, last_parts)});
  if (best.empty()) return in_section.empty() ? nearest(key, keys) : "";
  if (std::find(in_section.begin(), in_section.end(), best) != in_section.end()) {
    return prefix + best;
  }
  const auto found = std::find(last_parts.begin(), last_parts.end(), best);
  return keys[static_cast<size_t>(found - last_parts.begin())];
}

}  // namespace

std::optional<std::string> synonym(std::string_view key, std::string_view value) {
  const std::string whole = folded(key);
  for (const auto& [name, ours] : key_synonyms()) {
    if (name != whole && name != last_part(whole)) continue;
    if (const auto word = word_synonym(ours, value)) {
      return std::string(ours) + " = \"" + *word + "\"";
    }
    // The advice is for the value true.
    const bool is_value = ours.find(" = ") != std::string_view::npos;
    return std::string(ours) + (is_value && folded(value) == "false" ? " for true" : "");
  }
  return std::nullopt;
}

std::string advice(const std::string& key, const std::vector<std::string>& keys,
                   std::string_view value) {
  if (const auto known = synonym(key, value)) return "; here it is " + *known;
  const auto best = nearest_key(folded(key), keys);
  if (!best.empty()) return "; nearest: " + best;
  const auto section = key.substr(0, key.size() - last_part(key).size());
  const bool known = !section.empty() && std::any_of(keys.begin(), keys.end(), [&](const auto& k) {
    return k == section + std::string(last_part(k));
  });
  return known ? "; see tanren help " + section.substr(0, section.size() - 1) : "; see tanren help";
}

std::string nearest_section(const std::string& name, const std::vector<std::string>& keys) {
  std::vector<std::string> sections;
  for (const auto& key : keys) {
    const auto section = key.substr(0, key.rfind('.'));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return nearest(folded(name), sections);
}

}  // namespace tanren
