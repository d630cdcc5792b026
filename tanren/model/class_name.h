// The name of a Python class, as manifests of packages and files of weights hold it.
#pragma once

#include <string_view>

namespace tanren {

// Whether a Python class may have this name: letters, digits, underscores and characters beyond
// ASCII, except those that control a terminal. `text` is UTF-8. The reader of a name in a file of
// weights has the same rule.
bool is_class_name(std::string_view text);

}  // namespace tanren
