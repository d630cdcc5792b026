// Names that users type: glob patterns of parameters, and suggestions for misspelt names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// `*` matches any run of characters, `?` one character. The whole name must match.
bool matches(std::string_view pattern, std::string_view name);
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);
// Whether a pattern matches one of `names`.
bool matches_any(const std::vector<std::string>& patterns, const std::vector<std::string>& names);
// Whether one of `patterns` matches `name` and none of `others`.
bool matches_alone(const std::vector<std::string>& patterns, std::string_view name,
                   const std::vector<std::string>& others);
// Throws a ConfigError for the first of `patterns` that matches none of `parameters`, with the
// nearest name. It begins with `key`, such as "[model] freeze".
void check_matches(std::string_view key, const std::vector<std::string>& patterns,
                   const std::vector<std::string>& parameters);
// The closest of `known` by edit distance (ties: the first); empty if nothing is near.
std::string nearest(std::string_view name, const std::vector<std::string>& known);
// "a, b, c"
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace tanren
