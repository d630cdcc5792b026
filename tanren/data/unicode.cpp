#include "tanren/data/unicode.h"

#include <utf8proc.h>

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
  // Marks stand in the order of their combining classes.
  for (size_t i = 1; i < result.size(); ++i) {
    const auto* own = utf8proc_get_property(static_cast<utf8proc_int32_t>(result[i]));
    for (size_t j = i; j > 0 && own->combining_class != 0; --j) {
      const auto* before = utf8proc_get_property(static_cast<utf8proc_int32_t>(result[j - 1]));
      if (before->combining_class <= own->combining_class) break;
      std::swap(result[j - 1], result[j]);
    }
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
