// text: without a tokenizer, the tokens are the bytes of any files, and the vocabulary is 256. With
// a tokenizer, they are the tokens of the files' text. A file is a document: no target crosses from
// one to the next.
#include "tanren/base/text.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/data/file_list.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/token_cache.h"
#include "tanren/data/text/token_windows.h"
#include "tanren/formats/mapped_file.h"

#include <filesystem>

namespace tanren {

namespace {

// Smaller files are read into memory: a mapping takes a page at least, and a process can have only
// 65 530 mappings.
constexpr uintmax_t kMappedBytes = 1 << 20;

TokenPiece open_piece(const std::filesystem::path& path, const std::string& name) {
  TokenPiece piece{path.string()};
  std::error_code unknown;
  if (std::filesystem::file_size(path, unknown) >= kMappedBytes && !unknown) {
    const auto file = MappedFile::open(path);
    piece.data = file->data();
    piece.size = static_cast<int64_t>(file->size());
    piece.owner = file;
  } else {
    const auto bytes = std::make_shared<const std::string>(read_file(path));
    piece.data = bytes->data();
    piece.size = static_cast<int64_t>(bytes->size());
    piece.owner = bytes;
    piece.in_memory = true;
  }
  piece.file = {name, piece.size};
  return piece;
}

}  // namespace

std::unique_ptr<Dataset> open_text(const SourceOptions& options, const std::string& what,
                                   const DataInfo* train) {
  const FileList list = list_files(options, what);
  const SourceTokenizer source(options, train);
  TokenStream stream = source.empty_stream(options, what, train);
  if (source.tokenizer() != nullptr) {
    read_texts(list, *source.tokenizer(), *stream.tokenizer, options.cache, what, stream);
  } else {
    for (size_t i = 0; i < list.files.size(); ++i) {
      stream.pieces.push_back(open_piece(list.files[i], list.names[i]));
    }
  }
  if (list.files.size() == 1) {
    cut_to_part(stream.pieces.front(), list.begin, list.end, width_of(stream.type));
  }
  stream.part = split_part_text(options);
  return std::make_unique<TokenWindows>(std::move(stream), options.context, options.stride, what);
}

}  // namespace tanren
