// Turns texts into token ids. Streams files larger than memory, several chunks at once; the ids of
// a file are those of its whole text in one piece. Called by `tanren convert` and token_cache.cpp.
#pragma once

#include "tanren/data/text/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct TokenizedFile {
  int64_t bytes = 0;   // of text read
  int64_t tokens = 0;  // written
  int64_t width = 2;   // bytes of one id
};

// Bytes of an id in a file of this tokenizer's ids: 2, or 4 if the vocabulary needs them.
int64_t id_width(const Tokenizer& tokenizer);
// The ids as little-endian integers of `width` bytes.
std::string id_bytes(const TokenIds& ids, int64_t width);

// Checks that `text` is UTF-8 to its end. DataError naming line and byte; it begins with `what`
// ("data.train"). InputError for a file that cannot be read to its end.
void check_text(const std::filesystem::path& text, const std::string& what);

// Passes the ids of all `texts` to `see`, in order, with the index of their text. Chunks end where
// Tokenizer::may_cut() allows it. `see_chunk` gets the bytes of each text, in order, as they are
// read. Returns the counts of each text. Errors as check_text.
using SeeIds = std::function<void(size_t text, const TokenIds& ids)>;
using SeeChunk = std::function<void(size_t text, std::string_view bytes)>;
std::vector<TokenizedFile> tokenize_texts(const std::vector<std::filesystem::path>& texts,
                                          const std::string& what, const Tokenizer& tokenizer,
                                          int64_t threads, const SeeIds& see,
                                          const SeeChunk& see_chunk,
                                          int64_t chunk_bytes = int64_t{1} << 20);

// Writes the ids of `text` to `out`, atomically, in the format that data kind `tokens` reads.
// Errors as check_text.
TokenizedFile tokenize_file(const std::filesystem::path& text, const std::filesystem::path& out,
                            const Tokenizer& tokenizer, int64_t threads,
                            int64_t chunk_bytes = int64_t{1} << 20);

}  // namespace tanren
