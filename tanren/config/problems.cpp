#include "tanren/config/problems.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/synonyms.h"

#include <algorithm>
#include <cmath>

namespace tanren {

void Problems::check(bool fine, const std::string& problem) {
  if (!fine) found.push_back(problem);
}

void Problems::one_of(const std::string& key, const std::string& value,
                      const std::vector<std::string>& known) {
  auto& all = words[key];
  for (const auto& word : known) {
    if (std::find(all.begin(), all.end(), word) == all.end()) all.push_back(word);
  }
  for (const auto& word : known) {
    if (word == value) return;
  }
  auto ours = word_synonym(key, value);
  // A synonym may not fit this kind: "large" means a size of gpt2, which bert does not have.
  if (ours && std::find(known.begin(), known.end(), *ours) == known.end()) ours.reset();
  const auto best = nearest(value, known);
  found.push_back(fmt::format("{} \"{}\" is unknown; one of {}{}", key, value, join(known),
                              ours           ? " (here it is " + *ours + ")"
                              : best.empty() ? ""
                                             : " (nearest: " + best + ")"));
}

void Problems::count(const std::string& key, int64_t value, int64_t low) {
  at_least(key, value, low);
  check(value < kAbsurd, fmt::format("{} is {}, which is absurd; lower it", key, to_text(value)));
}

void Problems::sizes(const std::string& key, const std::vector<int64_t>& values) {
  double product = 1;
  for (const auto value : values) {
    at_least(key, value, 1);
    check(value < kAbsurdWidth,
          fmt::format("{} has {}, which is absurd; lower it", key, to_text(value)));
    product *= static_cast<double>(value);
  }
  check(product < static_cast<double>(kAbsurd) || key.find("shape") == std::string::npos,
        fmt::format("{} is {} numbers a sample, which is absurd; lower it", key, to_text(product)));
  check(values.size() <= 64,
        fmt::format("{} has {} entries, which is absurd; at most 64", key, values.size()));
}

void Problems::at_least(const std::string& key, int64_t value, int64_t low) {
  check(value >= low,
        fmt::format("{} is {}; it must be at least {}", key, to_text(value), to_text(low)));
}

void Problems::within(const std::string& key, double value, double low, double high, bool closed) {
  check(value >= low && (closed ? value <= high : value < high),
        fmt::format("{} is {}; it must lie in [{}, {}{}", key, to_text(value), to_text(low),
                    to_text(high), closed ? "]" : ")"));
}

void Problems::positive(const std::string& key, double value) {
  check(value > 0 && std::isfinite(value),
        fmt::format("{} is {}; it must be positive and finite", key, to_text(value)));
}

void Problems::not_negative(const std::string& key, double value) {
  check(value >= 0 && std::isfinite(value),
        fmt::format("{} is {}; it must be 0 or more and finite", key, to_text(value)));
}

void Problems::unused(const std::string& section, const std::vector<std::string>& keys,
                      const std::string& kind_key, const std::string& kind) {
  for (const auto& key : keys) {
    if (changed.count(section + key) == 0) continue;
    unused_keys.push_back({section + key, kind_key});
    check(false,
          fmt::format("{}{} has no meaning for {} \"{}\"; drop it", section, key, kind_key, kind));
  }
}

}  // namespace tanren
