// Counts the bytes and words of text that token ids stand for. Perplexities per byte and per word
// compare models with different tokenizers. Called by token_windows.cpp.
#pragma once

#include "tanren/data/text/tokenizer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// The text of each token, byte by byte. Immutable, so thread-safe.
class TokenTexts {
 public:
  // The tokens of a tokenizer that keeps every byte. Null for other tokenizers, because the bytes
  // of their tokens are not those of the text.
  static std::shared_ptr<const TokenTexts> of(const Tokenizer& tokenizer);
  // Each token is a byte.
  static std::shared_ptr<const TokenTexts> of_bytes();

  // Empty for a special token, and for an id outside the vocabulary.
  std::string_view text(int64_t id) const {
    const bool is_token = id >= 0 && id < static_cast<int64_t>(texts_.size());
    return is_token ? std::string_view(texts_[static_cast<size_t>(id)]) : std::string_view();
  }
  // Whether the token is special, so that no text continues across it.
  bool is_special(int64_t id) const {
    return id >= 0 && id < static_cast<int64_t>(special_.size()) &&
           special_[static_cast<size_t>(id)];
  }

 private:
  TokenTexts() = default;

  std::vector<std::string> texts_;
  std::vector<bool> special_;
};

// Counts the words of a text that is given token by token. A word is a run of characters other than
// white space, as Python's split() has it, and belongs to the token in which its first
// byte lies. A token may end within a character.
class WordCounter {
 public:
  // Call this before the first token of each separate text.
  void begin_text();
  // `counts`: whether words that begin in this token count.
  void add(std::string_view token, bool counts);
  // Whether the last token ended within a character, so that later tokens complete it.
  bool is_within_character() const { return !character_.empty(); }
  // The number of words so far. An incomplete character does not count as white space.
  int64_t words();

 private:
  void end_character();

  int64_t words_ = 0;
  bool in_word_ = false;
  std::string character_;  // its bytes so far
  size_t size_ = 0;        // in bytes, as its first byte announces
  bool character_counts_ = false;
};

}  // namespace tanren
