#include "tanren/base/names.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <algorithm>

namespace tanren {

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

bool matches_any(const std::vector<std::string>& patterns, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return matches_any(patterns, name); });
}

bool matches_alone(const std::vector<std::string>& patterns, std::string_view name,
                   const std::vector<std::string>& others) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return matches(pattern, name) &&
           std::none_of(others.begin(), others.end(),
                        [&](const std::string& other) { return matches(pattern, other); });
  });
}

namespace {
// In quarters of a letter: 1 if the letters differ only in case, 4 if they differ otherwise.
size_t letter_distance(char a, char b) {
  if (a == b) return 0;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return lower(a) == lower(b) ? 1 : 4;
}

// In quarters of a letter.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = 4 * j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = 4 * i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] =
          std::min({row[j] + 4, row[j - 1] + 4, diagonal + letter_distance(a[i - 1], b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}
}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = 4 * (std::max<size_t>(2, name.size() / 2) + 1);
  for (const auto& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

void check_matches(std::string_view key, const std::vector<std::string>& patterns,
                   const std::vector<std::string>& parameters) {
  for (const auto& pattern : patterns) {
    const bool fits = std::any_of(parameters.begin(), parameters.end(),
                                  [&](const auto& name) { return matches(pattern, name); });
    if (fits) continue;
    const std::string near = nearest(pattern, parameters);
    throw ConfigError(fmt::format("{} \"{}\" matches no parameter{}; fix or drop it", key, pattern,
                                  near.empty() ? "" : " (nearest: " + near + ")"));
  }
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string all;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) all += separator;
    all += words[i];
  }
  return all;
}

}  // namespace tanren
