// The value of `--set key=value` as TOML: texts need no quotes there, not even inside a list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// The items of "[a, b[1, 2], \"c, d\"]": split at commas outside brackets and quotes, trimmed.
// Empty if `value` is no such list.
std::vector<std::string> list_items(std::string_view value);

// `value` as a TOML text, quoted unless it is already.
std::string as_toml_text(const std::string& value);

// `value` as a TOML list of texts; `value` itself if it is no list.
std::string as_toml_list(const std::string& value);

// Whether keys in `text` are nested deeper than those of any config ("a.a.a.a…"). The TOML library
// walks them by recursion, so a hostile file could overflow the stack.
bool has_deep_keys(std::string_view text);

}  // namespace tanren
