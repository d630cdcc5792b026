// WordPiece as BERT uses it: clean, lower-case and strip accents (uncased), split at white space,
// punctuation and ideographs, then take the longest pieces from the left. Source: Devlin et al.,
// 2018.
#pragma once

#include "tanren/data/text/added_tokens.h"
#include "tanren/data/text/tokenizer.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace tanren {

struct WordPieceOptions {
  std::vector<std::string> vocabulary;  // by id; an id without a token is an empty text
  bool clean = true;                    // drop control characters, white space becomes a space
  bool set_cjk_apart = true;
  bool strip_accents = true;
  bool lowercase = true;
  std::string unknown = "[UNK]";
  std::string prefix = "##";     // of a piece that continues a word
  int64_t max_characters = 100;  // a longer word is unknown
  std::vector<AddedToken> added;
  Tokenizer::Frame frame;
};

// DataError (beginning with `where`) if `unknown` is not in the vocabulary.
std::unique_ptr<Tokenizer> make_wordpiece(WordPieceOptions options, const std::string& where);

}  // namespace tanren
