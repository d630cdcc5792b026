// Makes text from untrusted files safe to show in an error message or on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tanren {

// `text` with a space in place of each control character. If it is longer than 400 bytes, its
// middle is left out.
std::string one_line(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// The longest start of a text that could begin a UTF-8 character (RFC 3629), at least one byte. If
// it is not a whole character, one replacement character stands for it, as Unicode recommends
// (section 3.9) and as Python and Rust decode.
struct Character {
  size_t size = 0;
  bool is_whole = false;
};
// `text` must not be empty.
Character first_character(std::string_view text);
// Bytes of the UTF-8 character at the start of `text`, which must not be empty; 0: there is none.
size_t character_size(std::string_view text);
// `text` with U+FFFD in place of bytes that belong to no UTF-8 character, as JSON needs it.
std::string utf8_text(std::string_view text);

}  // namespace tanren
