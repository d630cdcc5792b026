// Special tokens that stand in a text as they are, and split it. Used by the tokenizers of this room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct SpecialToken {
  std::string text;
  int32_t id = 0;
  bool strip_left = false;   // takes the white space before it with it
  bool strip_right = false;  // and after it
};

// Calls plain(part) and special(id) for the parts of `text` in order; at one place the longest token
// wins. `tokens` may be empty.
template <typename Plain, typename Special>
void split_specials(std::string_view text, const std::vector<SpecialToken>& tokens, Plain&& plain,
                    Special&& special) {
  const auto is_space = [](char c) { return c == ' ' || (c >= 9 && c <= 13); };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const SpecialToken* found = nullptr;
    for (const auto& token : tokens) {
      const bool fits = text.substr(at, token.text.size()) == token.text;
      if (fits && (found == nullptr || token.text.size() > found->text.size())) found = &token;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t end = at;
    while (found->strip_left && end > begin && is_space(text[end - 1])) --end;
    if (end > begin) plain(text.substr(begin, end - begin));
    special(found->id);
    at += found->text.size();
    while (found->strip_right && at < text.size() && is_space(text[at])) ++at;
    begin = at;
  }
  if (begin < text.size()) plain(text.substr(begin));
}

}  // namespace tanren
