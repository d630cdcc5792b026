// Tokenizers in Hugging Face's file formats: WordPiece (BERT) and byte-level BPE (GPT-2). They give
// the same ids as Hugging Face for the same text. Immutable once loaded; encode and decode are safe
// from several threads.
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
  // Returns the ids of UTF-8 text, without the tokens that a model wants around it. Special tokens
  // in the text ("[MASK]") get their own ids. Bytes that are not UTF-8 count as U+FFFD.
  virtual TokenIds encode(std::string_view text) const = 0;
  // Returns the text of ids; DataError for an id outside the vocabulary.
  virtual std::string decode(const TokenIds& ids) const = 0;
  // The id of a token by its text in the vocabulary.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  virtual int64_t vocab_size() const = 0;  // one more than the largest id
  // Whether the texts of its tokens give the encoded text again, byte by byte.
  virtual bool keeps_every_byte() const { return false; }
  // Whether the token stands for no text, such as <|endoftext|>.
  virtual bool is_special(int32_t /*id*/) const { return false; }

  // Whether a text may be cut between these two bytes, so that the ids of the parts are those of
  // the whole. For every tokenizer, any text of words and spaces has such a place.
  virtual bool may_cut(char before, char after) const = 0;

  // The tokens that a model wants around one text, or a pair of texts: [CLS] a [SEP], [CLS] a [SEP]
  // b [SEP]. Empty if the tokenizer adds nothing.
  struct Frame {
    TokenIds begin, end;                          // around one text
    TokenIds pair_begin, pair_between, pair_end;  // around a pair
    std::optional<size_t> second_from =
        size_t{0};  // from this index of pair_between on the token type is 1
                    // (its size: from the second text on); nullopt: never
  };
  // How many tokens the frame of a text, or of a pair, takes.
  int64_t frame_size(bool pair) const;
  // encode(text) within the frame; the text is cut at its end so that there are at most max_length
  // ids in all (0: not cut).
  TokenIds encode_framed(std::string_view text, int64_t max_length = 0) const;
  // Encodes a pair of texts, cut like Hugging Face's "longest_first": a text shorter than half of
  // the room stays whole, else both get half. An odd token goes to the longer text, or to the
  // second one of two equal ones. type_ids: 0 for the first part, 1 for the second.
  TokenIds encode_pair(std::string_view a, std::string_view b, int64_t max_length,
                       std::vector<int32_t>* type_ids) const;

 protected:
  Frame frame_;
};

// Loads tokenizer.json, vocab.txt (WordPiece, uncased unless a tokenizer_config.json beside it says
// do_lower_case = false), vocab.json with merges.txt beside it, or the folder that holds them. For
// the older files, tokenizer_config.json, special_tokens_map.json and added_tokens.json beside them
// apply, as in transformers. DataError naming the file and what is missing, malformed, or of an
// unsupported kind, also for an id that Hugging Face would not give the token.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
// The same for files that were read before; `where` comes before their names in errors.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files,
                                          const std::filesystem::path& where);
// Returns the files that load_tokenizer would read, under the usual names, and the other files that
// Hugging Face keeps beside them (tokenizer_config.json, special_tokens_map.json,
// added_tokens.json). For missing files, the errors of load_tokenizer.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& path);
// Every name that read_tokenizer_files may return.
std::vector<std::string> tokenizer_file_names();

}  // namespace tanren
