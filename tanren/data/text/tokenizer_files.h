// Shared by the readers of a tokenizer's files: JSON, errors, and the ids of added tokens. Included
// only by tokenizer*.cpp.
#pragma once

#include "tanren/data/text/added_tokens.h"
#include "tanren/data/text/tokenizer.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren::tokenizer_files {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what);

// A file's text, and the path that names it in errors.
struct NamedText {
  const std::string& text;
  std::filesystem::path path;
};

Json read_json(const NamedText& file);  // DataError if it is not an object
std::string text_or(const Json& json, const char* key, const std::string& otherwise);
bool truth_or(const Json& json, const char* key, bool otherwise);

// {"token": id, …} → tokens by id; an id without a token is an empty text.
std::vector<std::string> vocabulary_of(const Json& json, const std::filesystem::path& path);

// An added token as a file declares it.
struct GivenToken {
  AddedToken token;
  bool special = false;
  std::optional<int64_t> id;
};

// {"content": "…", "lstrip": false, …}; missing keys default as in Hugging Face's AddedToken.
GivenToken token_of(const Json& json, const std::filesystem::path& path);

// Returns the tokens with the ids that Hugging Face gives them: the id in the vocabulary, else the
// next free id from `vocabulary_size` on. DataError if a file gives another id, or a token comes
// twice.
std::vector<AddedToken> with_ids(std::vector<GivenToken> tokens,
                                 const std::vector<std::string>& vocabulary, size_t vocabulary_size,
                                 const std::filesystem::path& path);

// The readers, one for each kind of file.
std::unique_ptr<Tokenizer> from_tokenizer_json(const NamedText& file);
std::unique_ptr<Tokenizer> from_vocab_txt(const NamedText& file, const TokenizerFiles& files);
std::unique_ptr<Tokenizer> from_vocab_json(const NamedText& file, const TokenizerFiles& files);

}  // namespace tanren::tokenizer_files
