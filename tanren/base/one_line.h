// Makes text from untrusted files safe to show in an error message or on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tanren {

// `text` with a space in place of each control character. If it is longer than 400 bytes, its
// middle is left out.
std::string one_line(std::string_view text);

// Bytes of the UTF-8 character at the start of `text`, which must not be empty; 0: there is none.
size_t character_size(std::string_view text);
// `text` with U+FFFD in place of each byte that belongs to no UTF-8 character, as JSON needs it.
std::string utf8_text(std::string_view text);

}  // namespace tanren
