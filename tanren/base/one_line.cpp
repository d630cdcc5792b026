#include "tanren/base/one_line.h"

namespace tanren {

std::string one_line(std::string_view text) {
  constexpr size_t kLongest = 400;
  std::string shown(text.substr(0, text.size() <= kLongest ? text.size() : kLongest / 2));
  if (text.size() > kLongest) {
    shown += "…";
    shown += text.substr(text.size() - kLongest / 2);
  }
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return shown;
}

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xc2 || first > 0xf4) return {1, false};
  const size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The bounds keep out overlong encodings, UTF-16 surrogates, and what is beyond Unicode.
  unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {size, true};
}

size_t character_size(std::string_view text) {
  const Character first = first_character(text);
  return first.is_whole ? first.size : 0;
}

std::string utf8_text(std::string_view text) {
  std::string sound;
  sound.reserve(text.size());
  while (!text.empty()) {
    const Character first = first_character(text);
    sound += first.is_whole ? text.substr(0, first.size) : kReplacementCharacter;
    text.remove_prefix(first.size);
  }
  return sound;
}

}  // namespace tanren
