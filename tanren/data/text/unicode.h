// Unicode properties of code points that tokenizers need (through utf8proc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tanren::unicode {

// Returns the code point of `text` at `at`, and moves `at` past it; U+FFFD for each byte that is
// not UTF-8.
int32_t next(std::string_view text, size_t& at);
// Returns the index at which the last code point of `text` begins; `text` must not be empty.
size_t last(std::string_view text);
void append(std::string& text, int32_t code);

bool is_letter(int32_t code);       // categories L*
bool is_number(int32_t code);       // N*
bool is_space(int32_t code);        // the property White_Space
bool is_punctuation(int32_t code);  // ASCII punctuation and symbols, and P*
bool is_other(int32_t code);        // control, format, surrogate, private use
bool is_word(int32_t code);         // what \w of a regular expression matches
bool is_mark(int32_t code);         // Mn: accents that stand on another character
bool is_cjk(int32_t code);          // ideographs that BERT sets apart

// Canonical decomposition (NFD).
std::u32string decomposed(const std::u32string& text);
// Appends the lower case of one code point (without context).
void append_lower(std::u32string& text, int32_t code);

}  // namespace tanren::unicode
