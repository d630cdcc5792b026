#include "tanren/data/text/encoding.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

// Recognised by its byte order mark, or because about every other of the first bytes is 0.
bool is_utf16(std::string_view bytes) {
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) return true;
  constexpr size_t kLooked = 64;
  const std::string_view head = bytes.substr(0, kLooked);
  if (head.size() < 8) return false;
  size_t even = 0, odd = 0;
  for (size_t i = 0; i < head.size(); ++i) (i % 2 == 0 ? even : odd) += head[i] == '\0' ? 1 : 0;
  const size_t half = head.size() / 2;
  return std::max(even, odd) * 4 >= half * 3 && std::min(even, odd) * 4 <= half;
}

}  // namespace

std::optional<size_t> first_bad_byte(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = character_size(bytes.substr(at, 4));
    if (size == 0 || bytes[at] == '\0') return at;
    at += size;
  }
  return std::nullopt;
}

size_t last_character(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(bytes.size(), 4); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    return byte < 0x80 ? bytes.size() : bytes.size() - back;
  }
  return bytes.size();
}

void TextCheck::add(std::string_view bytes, bool any_byte) {
  if (!std::exchange(begun_, true) && is_utf16(bytes)) {
    throw DataError(where_ + " is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8");
  }
  const auto bad = any_byte ? [&]() -> std::optional<size_t> {
    const size_t at = bytes.find('\0');
    return at == std::string_view::npos ? std::nullopt : std::optional(at);
  }()
      : first_bad_byte(bytes);
  const std::string_view sound = bytes.substr(0, bad.value_or(bytes.size()));
  const auto lines = std::count(sound.begin(), sound.end(), '\n');
  const auto last = static_cast<int64_t>(sound.size() - (sound.rfind('\n') + 1));
  column_ = lines == 0 ? column_ + static_cast<int64_t>(sound.size()) : last + 1;
  line_ += lines;
  if (!bad) return;
  const auto byte = static_cast<unsigned char>(bytes[*bad]);
  throw DataError(fmt::format("{}:{}: byte {}{}", where_, to_text(line_), to_text(column_),
                              byte == 0
                                  ? " is 0, which no text holds; is this a text file? Fix it"
                                  : fmt::format(" (0x{:02X}) is no UTF-8; {}", byte, advice_)));
}

std::string decoded_text(std::string bytes, const std::string& encoding, const std::string& where) {
  const bool is_latin = encoding == "latin-1";
  TextCheck check(where,
                  "convert the file, or set data.encoding = \"latin-1\" if all files are that");
  check.add(bytes, /*any_byte=*/is_latin);
  if (!is_latin) return bytes;
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 16);
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80) {
      text += c;
    } else {
      text += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    }
  }
  return text;
}

}  // namespace tanren
