// What the bytes of a text file mean. Tokenizers and columns take UTF-8; a file that is none is an error
// sooner than letters that nobody wrote. Called by the readers of texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tanren {

// Where the first byte stands that no UTF-8 text holds there, a 0 included; none: all is text.
std::optional<size_t> first_bad_byte(std::string_view bytes);

// The index at which the last character of `bytes` begins, which may be cut; their size where that
// character is a single byte.
size_t last_character(std::string_view bytes);

// Looks at a file part after part, cut between characters.
class TextCheck {
 public:
  // `where` begins the errors ("[data.train] a.csv"), `advice` ends those about other bytes than UTF-8.
  TextCheck(std::string where, std::string advice)
      : where_(std::move(where)), advice_(std::move(advice)) {}
  // DataError naming line and byte of what is no UTF-8, and UTF-16 by its name. `any_byte`: only a 0
  // is none.
  void add(std::string_view bytes, bool any_byte = false);

 private:
  std::string where_, advice_;
  int64_t line_ = 1, column_ = 1;
  bool begun_ = false;
};

// The text of a file in `encoding` ("utf-8", "latin-1") as UTF-8. DataError as TextCheck.
std::string decoded_text(std::string bytes, const std::string& encoding, const std::string& where);

}  // namespace tanren
