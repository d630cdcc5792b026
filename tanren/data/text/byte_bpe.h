// Byte-level byte-pair encoding as GPT-2 uses it: the text is cut into words by one fixed pattern,
// the bytes of a word are merged pair by pair, lowest rank first. Source: Radford et al., 2019.
#pragma once

#include "tanren/data/text/added_tokens.h"
#include "tanren/data/text/tokenizer.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct ByteBpeOptions {
  std::vector<std::string> vocabulary;  // by id, in GPT-2's spelling of bytes ("Ġthe")
  std::vector<std::pair<std::string, std::string>> merges;  // by rank, in the same spelling; if a
                                                            // pair comes twice, the last one counts
  bool add_prefix_space = false;  // a text that does not begin with a space gets one
  std::vector<AddedToken> added;
  Tokenizer::Frame frame;
};

// DataError (beginning with `where`) if a byte or the result of a merge is not in the vocabulary.
std::unique_ptr<Tokenizer> make_byte_bpe(const ByteBpeOptions& options, const std::string& where);

// Returns the end of the word that begins at `begin`, by GPT-2's pattern: contractions, letters,
// digits, other characters, each with one space before it, and white space.
size_t end_of_word(std::string_view text, size_t begin);

}  // namespace tanren
