// The name of a Python class, as manifests of packages and files of weights hold it.
#pragma once

#include <string_view>

namespace tanren {

// Whether a class of Python may have this name: letters, digits and underscores, and what is beyond
// ASCII, except for what steers a terminal. `text` is UTF-8. What reads a name back from a file of
// weights has the same rule.
bool is_class_name(std::string_view text);

}  // namespace tanren
