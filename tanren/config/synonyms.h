// Names that people bring from other trainers, and what they are called here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tanren {

// Advice for `key` (full key or last part), such as "precision.mode = \"fp16\""; nothing if unknown.
std::optional<std::string> synonym(std::string_view key);

}  // namespace tanren
