// Character encoding of text files. Tokenizers and columns take UTF-8. A file that is not UTF-8 is
// an error, because decoding it all the same would give wrong letters. Called by the readers of
// texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tanren {

// Returns the index of the first byte that is not valid UTF-8 at its place, or is 0; nullopt if all
// bytes are text.
std::optional<size_t> first_bad_byte(std::string_view bytes);

// Returns the index at which the last character of `bytes` begins; it may be incomplete. Returns
// the size of `bytes` if that character is a single byte.
size_t last_character(std::string_view bytes);

// Checks a file part by part; the parts are cut between characters.
class TextCheck {
 public:
  // `where` begins the errors ("[data.train] a.csv"), `advice` ends those about bytes that are not
  // UTF-8.
  TextCheck(std::string where, std::string advice)
      : where_(std::move(where)), advice_(std::move(advice)) {}
  // DataError naming line and byte of invalid UTF-8; a UTF-16 file is reported as UTF-16.
  // `any_byte`: any byte but 0 is accepted.
  void add(std::string_view bytes, bool any_byte = false);

 private:
  std::string where_, advice_;
  int64_t line_ = 1, column_ = 1;
  bool begun_ = false;
};

// The text of a file in `encoding` ("utf-8", "latin-1") as UTF-8. DataError as TextCheck.
std::string decoded_text(std::string bytes, const std::string& encoding, const std::string& where);

}  // namespace tanren
