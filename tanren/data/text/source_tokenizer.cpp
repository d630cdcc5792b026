#include "tanren/data/text/source_tokenizer.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/file_list.h"

#include <algorithm>
#include <filesystem>

namespace tanren {

namespace {

constexpr int64_t kBytes = 256;

bool is_name_of_text(const std::filesystem::path& path) {
  std::string end = path.extension().string();
  for (char& c : end) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return end == ".txt" || end == ".text" || end == ".md";
}

// Whether the names say that the file, or every file of the folder, holds text.
bool are_texts(const SourceOptions& source, const std::string& what) {
  std::error_code none;
  if (!std::filesystem::is_directory(source.path, none)) return is_name_of_text(source.path);
  const FileList list = list_files(source, what);
  return std::all_of(list.files.begin(), list.files.end(), is_name_of_text);
}

}  // namespace

SourceTokenizer::SourceTokenizer(const SourceOptions& options, const DataInfo* train) {
  if (!options.tokenizer.empty()) {
    files_ = std::make_shared<const TokenizerFiles>(read_tokenizer_files(options.tokenizer));
    tokenizer_ = load_tokenizer(*files_, options.tokenizer);
  } else if (train != nullptr && train->tokenizer != nullptr) {
    files_ = train->tokenizer;
    tokenizer_ = load_tokenizer(*files_, "tokenizer");
  }
}

TokenStream SourceTokenizer::empty_stream(const SourceOptions& options, const std::string& what,
                                          const DataInfo* train) const {
  const bool is_bytes = options.kind == "text" && tokenizer_ == nullptr;
  TokenStream stream;
  stream.tokenizer = files_;
  if (is_bytes) {
    stream.vocab_size = kBytes;
    stream.texts = TokenTexts::of_bytes();
    return stream;
  }
  stream.vocab_size = options.vocab_size;
  stream.document_end = options.document_end;
  if (tokenizer_ == nullptr) return stream;
  const int64_t known = tokenizer_->vocab_size();
  if (options.vocab_size > 0 && options.vocab_size < known) {
    throw ConfigError(
        fmt::format("[{}] vocab_size {} is smaller than the tokenizer's {} tokens; drop it to take "
                    "the tokenizer's",
                    what, to_text(options.vocab_size), to_text(known)));
  }
  if (options.vocab_size == 0) {
    stream.vocab_size = std::max(known, train != nullptr ? train->vocab_size : 0);
  }
  if (!options.document_end_token.empty()) {
    const auto id = tokenizer_->id_of(options.document_end_token);
    if (!id) {
      throw ConfigError("[" + what + "] the tokenizer has no token \"" +
                        one_line(options.document_end_token) +
                        "\"; set document_end_token to one that it has, or drop it");
    }
    stream.document_end = *id;
  }
  if (stream.document_end >= stream.vocab_size) {
    throw ConfigError(fmt::format("[{}] document_end is {}, and the tokens are 0 to {}; fix it",
                                  what, to_text(stream.document_end),
                                  to_text(stream.vocab_size - 1)));
  }
  stream.texts = TokenTexts::of(*tokenizer_);
  return stream;
}

DataInfo token_info(const SourceOptions& options, const std::string& what) {
  const TokenStream stream = SourceTokenizer(options, nullptr).empty_stream(options, what, nullptr);
  return {.input_shape = {options.context},
          .outputs = stream.vocab_size,
          .class_labels = true,
          .vocab_size = stream.vocab_size,
          .tokenizer = stream.tokenizer};
}

std::optional<int32_t> end_of_text(const Tokenizer& tokenizer) {
  for (const char* token : {"<|endoftext|>", "</s>", "<eos>"}) {
    if (const auto id = tokenizer.id_of(token)) return id;
  }
  return std::nullopt;
}

void read_as_text(SourceOptions& source, bool has_tokenizer, const std::string& what) {
  if (source.kind != "tokens" || !are_texts(source, what)) return;
  if (!has_tokenizer) {
    throw DataError("[" + what + "] " + source.path +
                    " is text by its name, and the model reads token ids and has no tokenizer; "
                    "give the ids, or rename a file that holds ids to end in .bin");
  }
  source.kind = "text";
  source.dtype = SourceOptions().dtype;
}

}  // namespace tanren
