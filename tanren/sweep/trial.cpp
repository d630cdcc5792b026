#include "tanren/sweep/trial.h"

#include "tanren/base/error.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace tanren {

namespace {

constexpr const char* kOutcomes[] = {"finished",      "stopped",   "diverged",
                                     "out_of_memory", "too_large", "refused",
                                     "crashed",       "hung",      "failed"};

auto entry_of(const TrialValues& values, const std::string& key) {
  return std::find_if(values.begin(), values.end(),
                      [&](const auto& value) { return value.first == key; });
}

}  // namespace

std::string to_text(TrialOutcome outcome) { return kOutcomes[static_cast<size_t>(outcome)]; }

std::optional<TrialOutcome> trial_outcome(const std::string& name) {
  const auto found = std::find(std::begin(kOutcomes), std::end(kOutcomes), name);
  if (found == std::end(kOutcomes)) return std::nullopt;
  return static_cast<TrialOutcome>(found - std::begin(kOutcomes));
}

bool Trial::has(const std::string& key) const { return entry_of(values, key) != values.end(); }

const std::string& Trial::text(const std::string& key) const {
  const auto found = entry_of(values, key);
  if (found == values.end()) {
    throw ConfigError("[sweep] trial " + std::to_string(id) + " has no " + key +
                      "; ask has() first, or add it to the space");
  }
  return found->second;
}

double Trial::number(const std::string& key) const {
  const std::string& value = text(key);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    throw ConfigError("[sweep] " + key + " is \"" + value + "\", which is no number; read text()");
  }
  return number;
}

std::vector<std::string> Trial::sets() const {
  std::vector<std::string> sets;
  for (const auto& [key, value] : values) sets.push_back(key + "=" + value);
  return sets;
}

}  // namespace tanren
