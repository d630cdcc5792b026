// Text from files that strangers made, as an error message or a list on a terminal may show it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tanren {

// `text` with a space for each control character, and its middle left out if it is longer than 400
// bytes.
std::string one_line(std::string_view text);

// Bytes of the UTF-8 character that begins `text`, which is not empty; 0: none does.
size_t character_size(std::string_view text);
// `text` with U+FFFD for each byte that belongs to no UTF-8 character, as JSON wants it.
std::string utf8_text(std::string_view text);

}  // namespace tanren
