#include "tanren/data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tanren::unicode {

namespace {
constexpr int32_t kReplacement = 0xFFFD;

bool within(utf8proc_category_t category, utf8proc_category_t low, utf8proc_category_t high) {
  return category >= low && category <= high;
}
}  // namespace

int32_t next(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) {
    ++at;
    return first;
  }
  int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  const auto length =
      utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  if (length <= 0) {
    ++at;
    return kReplacement;
  }
  at += static_cast<size_t>(length);
  return code;
}

size_t last(std::string_view text) {
  constexpr size_t kLongest = 4;
  size_t at = text.size() - 1;
  const size_t first = text.size() - std::min(text.size(), kLongest);
  while (at > first && (text[at] & '\xC0') == '\x80') --at;
  size_t end = at;
  next(text, end);
  return end == text.size() ? at : text.size() - 1;  // a byte that is no UTF-8 stands alone
}

void append(std::string& text, int32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto length = utf8proc_encode_char(code, bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
}

bool is_letter(int32_t code) {
  if (code < 0x80) return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
  return within(utf8proc_category(code), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
bool is_number(int32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return within(utf8proc_category(code), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
bool is_space(int32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
bool is_punctuation(int32_t code) {
  if (code < 0x80) {
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  }
  return within(utf8proc_category(code), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}
bool is_other(int32_t code) {
  if (code < 0x80) return code < 32 || code == 127;
  return within(utf8proc_category(code), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}
bool is_mark(int32_t code) {
  return code >= 0x80 && utf8proc_category(code) == UTF8PROC_CATEGORY_MN;
}
bool is_word(int32_t code) {
  if (code < 0x80) return is_letter(code) || is_number(code) || code == '_';
  // Circled and squared letters are alphabetic, though their category is a symbol's.
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                       (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  const bool joins = code == 0x200C || code == 0x200D;
  const auto category = utf8proc_category(code);
  return circled || joins || within(category, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}
bool is_cjk(int32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

std::u32string decomposed(const std::u32string& text) {
  std::u32string result;
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  for (const char32_t code : text) {
    if (code < 0x80) {
      result += code;
      continue;
    }
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                               parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    if (count <= 0 || static_cast<size_t>(count) > parts.size()) {
      result += code;
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) result += static_cast<char32_t>(parts[i]);
  }
  // Marks are sorted by their combining classes.
  const auto class_of = [](char32_t code) {
    return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
  };
  for (auto begin = result.begin(); begin != result.end();) {
    const auto end =
        std::find_if(begin, result.end(), [&](char32_t c) { return class_of(c) == 0; });
    std::stable_sort(begin, end, [&](char32_t a, char32_t b) { return class_of(a) < class_of(b); });
    begin = end == result.end() ? end : end + 1;
  }
  return result;
}

void append_lower(std::u32string& text, int32_t code) {
  if (code == 0x130) {  // the one letter whose lower case is two code points
    text += U"i\u0307";
    return;
  }
  text += static_cast<char32_t>(utf8proc_tolower(code));
}

}  // namespace tanren::unicode
