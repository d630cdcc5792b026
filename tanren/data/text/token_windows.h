// TokenWindows: a stream of token ids cut into windows of `context` tokens, the dataset of the
// kinds text and tokens. "inputs" int64 [n, T] and "labels" int64 [n, T], the token after each
// input; -100 if there is no target: at a document's end and after the stream's. Counts: samples,
// tokens; in evaluation, if the tokens' texts are known, also the bytes and words of the targets.
// Only the requested rows are copied, so the stream may be a file larger than memory; the
// files must not shrink meanwhile. Safe to use from several threads.
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/data/text/text_counts.h"
#include "tanren/data/text/token_copy.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Contiguous little-endian ids in memory, at any address: a file, or part of it.
struct TokenPiece {
  std::string name;  // of the file
  const char* data = nullptr;
  int64_t size = 0;   // ids
  int64_t first = 0;  // index in the file of the id at `data`
  std::shared_ptr<const void> owner;
  DataFile file = {};
  bool in_memory = false;  // read as a whole, not mapped
};

// Narrows a piece, whose ids are `width` bytes each, to its shares [begin, end).
void cut_to_part(TokenPiece& piece, double begin, double end, int64_t width);

struct TokenStream {
  std::vector<TokenPiece> pieces;  // documents end where pieces do
  TokenType type = TokenType::uint8;
  int64_t vocab_size = 0;
  int64_t document_end = -1;  // the id that ends a document; -1: none does
  std::string part;           // the part of data.split as text; empty: no split
  std::shared_ptr<const TokenizerFiles> tokenizer = nullptr;  // that made the ids; null: unknown
  std::shared_ptr<const TokenTexts> texts = nullptr;          // of the ids; null: unknown
  std::vector<DataPart> prints = {};  // of the texts and the tokenizer that the ids are from
};

class TokenWindows : public Dataset {
 public:
  // Window i begins at token i × stride; 1 ≤ stride ≤ context, 0 stands for context.
  // DataError if the stream does not fill one window.
  TokenWindows(TokenStream stream, int64_t context, int64_t stride, std::string what);

  int64_t size() const override { return size_; }
  DataInfo info() const override;
  // The number of inputs in the window that have a next token. The rest of the last window is
  // padding.
  int64_t length(int64_t window) const;
  // Every target of the stream counts in exactly one window: if windows overlap, the later one has
  // it as context only. DataError naming file and place for an id past the vocabulary.
  Collated collate(const std::vector<int64_t>& indices) const override;
  // The same with all targets of each window.
  Collated collate_training(const std::vector<int64_t>& indices, const Draw& draw) const override;
  // Names and sizes of the files, the contents of those in memory, and the stream's prints.
  std::vector<DataPart> parts() const override;

 private:
  struct Text {
    int64_t bytes = 0, words = 0;
  };

  Collated make(const std::vector<int64_t>& indices, bool each_target_once) const;
  // Fills one row; returns how many of its labels count.
  int64_t fill(int64_t window, bool each_target_once, int64_t* inputs, int64_t* labels) const;
  // The text of a filled row's targets; the row begins at token `begin`.
  Text text_of(int64_t begin, const int64_t* inputs, const int64_t* labels) const;
  // Whether token `at` of the stream begins a document.
  bool begins_document(int64_t at) const;
  int64_t id_at(int64_t at) const;
  // Copies tokens [begin, end) of the stream; ids past the vocabulary are refused.
  void copy(int64_t begin, int64_t end, int64_t* inputs, int64_t* labels) const;
  [[noreturn]] void refuse(const TokenPiece& piece, int64_t begin, int64_t end) const;

  TokenStream stream_;
  std::vector<int64_t> starts_;  // where pieces begin in the stream; then its end
  int64_t context_, stride_;
  int64_t size_ = 0;
  std::string what_;
};

}  // namespace tanren
