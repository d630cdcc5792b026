// The token ids of texts, kept for later starts. A file of the cache is named by a hash of the
// texts, the tokenizer and the format. It is written whole or not at all and checked whenever it is
// opened. A damaged or foreign file is made again. Processes that start together wait for the one
// that makes it. Called by text.cpp.
#pragma once

#include "tanren/data/file_list.h"
#include "tanren/data/text/token_windows.h"
#include "tanren/data/text/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace tanren {

// The version of our tokenizers. Raise it with every change that gives some text other ids. Kept
// ids are then made again, and a run cannot silently continue with other ids.
inline constexpr int64_t kTokenizerVersion = 1;

// Fills the stream's pieces (one for each text), type and prints. The ids lie in the folder
// `cache`. If `cache` is empty or cannot be written, they lie in a temporary file that is freed
// when the process ends. Memory does not grow with the texts, if they have places where
// Tokenizer::may_cut() allows a cut. Errors as check_text. DataError also for a text that changes
// meanwhile, RunError for a full disk.
void read_texts(const FileList& list, const Tokenizer& tokenizer, const TokenizerFiles& files,
                const std::filesystem::path& cache, const std::string& what, TokenStream& stream);

// The folder beside a run folder that the runs of one place share: ".tokens".
std::filesystem::path token_cache_beside(const std::filesystem::path& run_folder);

}  // namespace tanren
