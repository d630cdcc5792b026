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

size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // An overlong encoding, a UTF-16 surrogate, or beyond Unicode.
  const bool wrong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                     (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return wrong ? 0 : size;
}

std::string utf8_text(std::string_view text) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
  std::string sound;
  sound.reserve(text.size());
  while (!text.empty()) {
    const size_t size = character_size(text);
    sound += size == 0 ? kReplacement : text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return sound;
}

}  // namespace tanren
