// Text from files that strangers made, as an error message or a list on a terminal may show it.
#pragma once

#include <string>
#include <string_view>

namespace tanren {

// `text` with a space for each control character, and its middle left out if it is longer than 400
// bytes.
std::string one_line(std::string_view text);

}  // namespace tanren
