// Tokenizers as Hugging Face keeps them: WordPiece (BERT) and byte-level BPE (GPT-2), with the same
// ids for the same text. Immutable once loaded; encode and decode are safe from several threads.
#pragma once

#include "tanren/base/data_info.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

using TokenIds = std::vector<int32_t>;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // The ids of UTF-8 text, without the tokens that a model wants around it. Special tokens that stand
  // in the text ("[MASK]") are themselves. Bytes that are no UTF-8 count as U+FFFD.
  virtual TokenIds encode(std::string_view text) const = 0;
  // The text of ids; DataError for an id outside the vocabulary.
  virtual std::string decode(const TokenIds& ids) const = 0;
  // The id of a token by its text in the vocabulary.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  virtual int64_t vocab_size() const = 0;  // one more than the largest id

  // Whether a text may be cut between these two bytes, so that the ids of the parts are those of the
  // whole. True somewhere in any text of words and spaces, whatever the tokenizer.
  virtual bool may_cut(char before, char after) const = 0;

  // What a model wants around one text, or a pair of them: [CLS] a [SEP], [CLS] a [SEP] b [SEP].
  // Empty where the tokenizer adds nothing.
  struct Frame {
    TokenIds begin, end;                          // around one text
    TokenIds pair_begin, pair_between, pair_end;  // around a pair
    std::optional<size_t> second_from =
        size_t{0};  // the token type is 1 from here on in pair_between
                    // (its size: from the second text on); none: never
  };
  // How many tokens the frame of a text, or of a pair, takes.
  int64_t frame_size(bool pair) const;
  // encode(text) within the frame, cut at its end to max_length ids in all (0: not cut).
  TokenIds encode_framed(std::string_view text, int64_t max_length = 0) const;
  // A pair of texts, cut as Hugging Face cuts "longest_first": a text shorter than half of the room
  // stays whole, else both get half, the longer one the odd token, the second one of two equal ones.
  // type_ids: 0 for the first part, 1 for the second.
  TokenIds encode_pair(std::string_view a, std::string_view b, int64_t max_length,
                       std::vector<int32_t>* type_ids) const;

 protected:
  Frame frame_;
};

// Loads tokenizer.json, vocab.txt (WordPiece, uncased unless a tokenizer_config.json beside it says
// do_lower_case = false), vocab.json with merges.txt beside it, or the folder that holds them. The
// older files take what tokenizer_config.json, special_tokens_map.json and added_tokens.json beside
// them say, as transformers does. DataError naming the file and what is missing, malformed, or of a
// kind that is not read here, also an id that Hugging Face would not give the token.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
// The same of files that were read before; `where` stands before their names in errors.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files,
                                          const std::filesystem::path& where);
// What load_tokenizer would read, under the usual names, and what else Hugging Face keeps beside it
// (tokenizer_config.json, special_tokens_map.json, added_tokens.json). Errors as there for files that
// are missing.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& path);
// Every name that it may give.
std::vector<std::string> tokenizer_file_names();

}  // namespace tanren
