#include "tanren/data/text/text_counts.h"

#include "tanren/data/text/unicode.h"

namespace tanren {

namespace {

// Bytes of the UTF-8 character that begins with this byte; 1 if none does.
size_t announced_size(unsigned char first) {
  if (first >= 0xF0 && first <= 0xF4) return 4;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xC2 && first < 0xE0 ? 2 : 1;
}

// What \s of Python's regular expressions matches: White_Space and the separators U+001C to U+001F.
bool is_between_words(std::string_view character) {
  size_t at = 0;
  const int32_t code = unicode::next(character, at);
  return unicode::is_space(code) || (code >= 0x1C && code <= 0x1F);
}

}  // namespace

std::shared_ptr<const TokenTexts> TokenTexts::of(const Tokenizer& tokenizer) {
  if (!tokenizer.keeps_every_byte()) return nullptr;
  std::shared_ptr<TokenTexts> all(new TokenTexts());
  const auto size = static_cast<int32_t>(tokenizer.vocab_size());
  for (int32_t id = 0; id < size; ++id) {
    const bool is_special = tokenizer.is_special(id);
    all->special_.push_back(is_special);
    all->texts_.push_back(is_special ? "" : tokenizer.decode({id}));
  }
  return all;
}

std::shared_ptr<const TokenTexts> TokenTexts::of_bytes() {
  std::shared_ptr<TokenTexts> all(new TokenTexts());
  for (int byte = 0; byte < 256; ++byte) all->texts_.emplace_back(1, static_cast<char>(byte));
  return all;
}

void WordCounter::begin_text() {
  end_character();
  in_word_ = false;
}

void WordCounter::add(std::string_view token, bool counts) {
  for (const char c : token) {
    const auto byte = static_cast<unsigned char>(c);
    const bool goes_on = (byte & 0xC0) == 0x80;
    if (!goes_on || character_.size() == size_) end_character();
    if (character_.empty()) {
      size_ = announced_size(byte);
      character_counts_ = counts;
    }
    character_ += c;
    if (character_.size() == size_) end_character();
  }
}

int64_t WordCounter::words() {
  end_character();
  return words_;
}

void WordCounter::end_character() {
  if (character_.empty()) return;
  const bool is_space = is_between_words(character_);
  if (!is_space && !in_word_ && character_counts_) ++words_;
  in_word_ = !is_space;
  character_.clear();
}

}  // namespace tanren
