#include "tanren/model/class_name.h"

#include "tanren/base/one_line.h"

#include <cstddef>

namespace tanren {

namespace {

// Whether the UTF-8 character controls a terminal: U+0080 to U+009F, and the separators and writing
// directions (U+2028 to U+202E, U+2066 to U+2069).
bool is_control(std::string_view character) {
  const auto last = static_cast<unsigned char>(character.back());
  if (character.starts_with("\xc2")) return last < 0xa0;
  if (character.starts_with("\xe2\x80")) return last >= 0xa8 && last <= 0xae;
  return character.starts_with("\xe2\x81") && last >= 0xa6 && last <= 0xa9;
}

}  // namespace

bool is_class_name(std::string_view text) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const char c = text.front();
    const bool is_word =
        c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const size_t size = character_size(text);
    if (size == 0 || (size == 1 && !is_word) || is_control(text.substr(0, size))) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace tanren
