// Converts text files to token files. Streams files larger than memory, several chunks at once; the
// ids are those of the whole text in one piece. Called by `tanren convert`.
#pragma once

#include "tanren/data/text/tokenizer.h"

#include <cstdint>
#include <filesystem>

namespace tanren {

struct TokenizedFile {
  int64_t bytes = 0;   // of text read
  int64_t tokens = 0;  // written
  int64_t width = 2;   // bytes of one id
};

// Writes the ids of `text` to `out`, atomically, in the format that data kind `tokens` reads:
// little-endian uint16, or uint32 if the vocabulary needs it. Chunks end where Tokenizer::may_cut()
// allows it. InputError for a file that cannot be read to its end.
TokenizedFile tokenize_file(const std::filesystem::path& text, const std::filesystem::path& out,
                            const Tokenizer& tokenizer, int64_t threads,
                            int64_t chunk_bytes = int64_t{1} << 20);

}  // namespace tanren
