// SourceTokenizer: the tokenizer of a source of the kinds text and tokens. It is the source's own
// or the training data's. It determines the vocabulary, the id that ends a document, and the texts
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
  // `train`: for evaluation data, the training data's DataInfo; otherwise null. DataError as
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

// The DataInfo of a source of the kind text or tokens. Does not open the data files. Errors as
// SourceTokenizer.
DataInfo token_info(const SourceOptions& options, const std::string& what);

// The token that ends a text: <|endoftext|>, </s> or <eos>; nullopt if the tokenizer has none of
// them. A generated text without a prompt also begins with this token.
std::optional<int32_t> end_of_text(const Tokenizer& tokenizer);

// Changes a source of the kind tokens to the kind text if the file's name, or every file name in
// the folder, is that of a text: .txt, .text or .md, in upper or lower case. DataError if the model
// has no tokenizer, and as list_files.
void read_as_text(SourceOptions& source, bool has_tokenizer, const std::string& what);

}  // namespace tanren
