// SourceTokenizer: the tokenizer of a source of the kinds text and tokens, its own or that of the
// training data, and what follows from it: the vocabulary, the id that ends a document, the texts
// of the ids. Called by text.cpp, tokens.cpp and by code that needs the DataInfo without the data.
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/data/text/token_windows.h"
#include "tanren/data/text/tokenizer.h"

#include <memory>
#include <optional>
#include <string>

namespace tanren {

class SourceTokenizer {
 public:
  // `train`: the training data's DataInfo, of evaluation data; else null. DataError as
  // load_tokenizer.
  SourceTokenizer(const SourceOptions& options, const DataInfo* train);

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null: there is none
  // A stream without pieces. ConfigError for a vocab_size below the tokenizer's, or a
  // document_end_token that it lacks.
  TokenStream empty_stream(const SourceOptions& options, const std::string& what,
                           const DataInfo* train) const;

 private:
  std::shared_ptr<const TokenizerFiles> files_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// The DataInfo of a source of the kind text or tokens, without its files. Errors as
// SourceTokenizer.
DataInfo token_info(const SourceOptions& options, const std::string& what);

// The token that ends a text, which a text without a prompt begins with, too: <|endoftext|>, </s>
// or <eos>; nullopt if the tokenizer has none of them.
std::optional<int32_t> end_of_text(const Tokenizer& tokenizer);

// Makes a source of the kind tokens one of the kind text, if the name of the file, or of every file
// of the folder, says that it holds text, no ids: .txt, .text or .md, in any case. DataError if the
// model has no tokenizer, and as list_files.
void read_as_text(SourceOptions& source, bool has_tokenizer, const std::string& what);

}  // namespace tanren
