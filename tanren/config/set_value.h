// The value of one --set as TOML, by the type of its key. Called by read_config and write_config.
#pragma once

#include "tanren/config/fields.h"
#include "tanren/config/toml.h"

#include <memory>
#include <string>

namespace tanren {

struct SetValue {
  std::string text;                    // TOML
  std::unique_ptr<toml::table> table;  // {v = text}; null: the value is no TOML
};

// A bare word is a text. `field`: of the key; null if there is none.
SetValue parse_set_value(const Field* field, const std::string& value);

}  // namespace tanren
