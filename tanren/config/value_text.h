// Values of config fields as TOML text, and their types in words for error texts.
#pragma once

#include "tanren/config/fields.h"

#include <map>
#include <string>
#include <vector>

namespace tanren {

std::string toml_text(const std::string& value);
inline std::string toml_text(bool value) { return value ? "true" : "false"; }
// Empty for an optional key that is not set.
std::string toml_text(const Field& field);

// Key → value as TOML text.
std::map<std::string, std::string> values_of(const std::vector<Field>& fields);
// Without the keys of objectives that have the run's value.
std::map<std::string, std::string> values_of(const RunConfig& config);

// The type of value that a key takes, in words.
std::string type_text(const Field& field);

}  // namespace tanren
