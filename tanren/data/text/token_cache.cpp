// A file of the cache: a header (kBegin, key, bytes of an id), the ids of all texts, the number of
// ids of each text (int64), and a footer (a hash of ids and numbers, kEnd). All little-endian.
#include "tanren/data/text/token_cache.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/log.h"
#include "tanren/base/temporary.h"
#include "tanren/base/text.h"
#include "tanren/data/text/tokenize_file.h"
#include "tanren/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBegin = "tanren tokens 1\n", kEnd = "\ntanren tokens.\n";
constexpr size_t kHashBlock = size_t{1} << 20;
constexpr size_t kHeader = kBegin.size() + 2 * sizeof(int64_t);
constexpr size_t kFooter = sizeof(int64_t) + kEnd.size();

std::string bytes_of_number(int64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// Hashes a stream of bytes in blocks of a fixed size, so that the hash does not depend on how the
// bytes are divided between calls.
class BlockHash {
 public:
  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, kHashBlock - block_.size());
      block_ += part;
      bytes.remove_prefix(part.size());
      if (block_.size() == kHashBlock) end_block();
    }
  }
  uint64_t value() {
    end_block();
    return hash_.value();
  }

 private:
  void end_block() {
    if (!block_.empty()) hash_.add(block_);
    block_.clear();
  }

  Hash64 hash_;
  std::string block_;
};

// Passes the next `size` bytes of a file to `see`, in blocks; false if there are fewer.
template <typename See>
bool read_blocks(OpenFile& file, uint64_t size, const See& see) {
  std::string block;
  while (size > 0) {
    block.resize(static_cast<size_t>(std::min<uint64_t>(size, kHashBlock)));
    const size_t count = file.read(block.data(), block.size());
    if (count < block.size()) return false;
    see(std::string_view(block));
    size -= count;
  }
  return true;
}

// What the ids are made from.
struct TextsToRead {
  const FileList& list;
  const Tokenizer& tokenizer;
  const std::string& what;
  std::vector<int64_t> bytes = {};  // of each text
  std::vector<uint64_t> hashes = {};
  DataPart contents = {"contents"}, tokenizer_print = {"tokenizer"};
  int64_t key = 0;
};

// Reads all texts once, for their hash.
void look_at(TextsToRead& texts, const TokenizerFiles& files) {
  Hash64 contents, tokenizer, key;
  for (const fs::path& path : texts.list.files) {
    OpenFile file = open_file(path);
    BlockHash hash;
    int64_t bytes = 0;
    std::string block(std::min<size_t>(kHashBlock, file.size + 1), '\0');
    while (file.stream) {
      const size_t count = file.read(block.data(), block.size());
      hash.add(std::string_view(block).substr(0, count));
      bytes += static_cast<int64_t>(count);
    }
    texts.bytes.push_back(bytes);
    contents.add(bytes);
    texts.hashes.push_back(hash.value());
    contents.add(static_cast<int64_t>(texts.hashes.back()));
  }
  for (const auto& [name, text] : files) {
    tokenizer.add(name);
    tokenizer.add(text);
  }
  if constexpr (kTokenizerVersion > 1) tokenizer.add(kTokenizerVersion);  // the first had no number
  texts.contents.hash = contents.value();
  texts.tokenizer_print.hash = tokenizer.value();
  key.add(kBegin);
  key.add(static_cast<int64_t>(texts.contents.hash));
  key.add(static_cast<int64_t>(texts.tokenizer_print.hash));
  texts.key = static_cast<int64_t>(key.value());
}

// The ids of the texts from the file `path`; nullopt if it is damaged or has the ids of other
// texts.
std::optional<std::vector<TokenPiece>> checked_pieces(const fs::path& path,
                                                      const TextsToRead& texts) {
  OpenFile file = open_file(path);
  const auto width = static_cast<uint64_t>(id_width(texts.tokenizer));
  const uint64_t numbers = texts.list.files.size() * sizeof(int64_t);
  if (file.size < kHeader + numbers + kFooter) return std::nullopt;
  const uint64_t ids = file.size - kHeader - numbers - kFooter;
  std::string header(kHeader, '\0'), footer(kFooter, '\0'), counts;
  if (file.read(header.data(), kHeader) < kHeader) return std::nullopt;
  const std::string expected = std::string(kBegin) + bytes_of_number(texts.key) +
                               bytes_of_number(static_cast<int64_t>(width));
  if (header != expected) return std::nullopt;
  BlockHash hash;
  const bool is_whole = read_blocks(file, ids, [&](std::string_view block) { hash.add(block); }) &&
                        read_blocks(file, numbers,
                                    [&](std::string_view block) {
                                      hash.add(block);
                                      counts += block;
                                    }) &&
                        file.read(footer.data(), kFooter) == kFooter;
  if (!is_whole) return std::nullopt;
  if (footer != bytes_of_number(static_cast<int64_t>(hash.value())) + std::string(kEnd)) {
    return std::nullopt;
  }
  const auto mapped = MappedFile::open(path);
  if (mapped->size() != file.size) return std::nullopt;
  std::vector<TokenPiece> pieces;
  uint64_t at = 0;
  for (size_t i = 0; i < texts.list.files.size(); ++i) {
    int64_t count = 0;
    std::memcpy(&count, counts.data() + i * sizeof count, sizeof count);
    if (count < 0 || static_cast<uint64_t>(count) > (ids - at) / width) return std::nullopt;
    pieces.push_back({.name = texts.list.files[i].string(),
                      .data = mapped->data() + kHeader + at,
                      .size = count,
                      .owner = mapped,
                      .file = {texts.list.names[i], texts.bytes[i]}});
    at += static_cast<uint64_t>(count) * width;
  }
  if (at != ids) return std::nullopt;
  return pieces;
}

// The same; also nullopt if the file does not exist or cannot be read.
std::optional<std::vector<TokenPiece>> open_kept(const fs::path& path, const TextsToRead& texts) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return std::nullopt;
  try {
    return checked_pieces(path, texts);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Checks, while the texts are tokenized, that they still have the hashes of look_at().
class SameTexts {
 public:
  explicit SameTexts(const TextsToRead& texts) : texts_(texts) {}

  void add(size_t text, std::string_view bytes) {
    end_before(text);
    hash_->add(bytes);
  }
  // Ends all texts before `text`.
  void end_before(size_t text) {
    for (; at_ < text; ++at_) {
      if (hash_->value() != texts_.hashes[at_]) {
        throw DataError("[" + texts_.what + "] " + texts_.list.files[at_].string() +
                        " changed while it was read; start again");
      }
      hash_ = std::make_unique<BlockHash>();
    }
  }

 private:
  const TextsToRead& texts_;
  size_t at_ = 0;
  std::unique_ptr<BlockHash> hash_ = std::make_unique<BlockHash>();
};

// Tokenizes the texts and writes `path`. Returns the number of ids.
int64_t make_kept(const fs::path& path, const TextsToRead& texts) {
  for (const fs::path& text : texts.list.files) check_text(text, texts.what);
  const int64_t width = id_width(texts.tokenizer);
  const auto threads = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  int64_t total = 0;
  write_file(path, [&](const Write& write) {
    write(std::string(kBegin) + bytes_of_number(texts.key) + bytes_of_number(width));
    BlockHash hash;
    const auto put = [&](const std::string& bytes) {
      hash.add(bytes);
      write(bytes);
    };
    SameTexts same(texts);
    const auto done = tokenize_texts(
        texts.list.files, texts.what, texts.tokenizer, threads,
        [&](size_t, const TokenIds& ids) { put(id_bytes(ids, width)); },
        [&](size_t text, std::string_view bytes) { same.add(text, bytes); });
    same.end_before(done.size());
    for (const auto& text : done) {
      put(bytes_of_number(text.tokens));
      total += text.tokens;
    }
    write(bytes_of_number(static_cast<int64_t>(hash.value())) + std::string(kEnd));
  });
  return total;
}

// Lets one process at a time make the file. On a file system without locks, all processes make the
// same file at once.
class MakingScope {
 public:
  explicit MakingScope(const fs::path& folder)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (folder_ >= 0 && ::flock(folder_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~MakingScope() {
    if (folder_ >= 0) ::close(folder_);
  }
  MakingScope(const MakingScope&) = delete;
  MakingScope& operator=(const MakingScope&) = delete;

 private:
  int folder_;
};

bool can_write_in(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return fs::is_directory(folder, error) && ::access(folder.c_str(), W_OK) == 0;
}

void tell_made(const TextsToRead& texts, int64_t tokens, const std::string& where) {
  int64_t bytes = 0;
  for (const int64_t of_text : texts.bytes) bytes += of_text;
  log(fmt::format("[{}] tokenized {} of text into {} tokens{}", texts.what, size_text(bytes),
                  count_text(tokens), where));
}

std::vector<TokenPiece> pieces_of_made(const fs::path& path, const TextsToRead& texts) {
  auto pieces = open_kept(path, texts);
  if (pieces) return std::move(*pieces);
  throw DataError("[" + texts.what + "] the token ids in " + path.string() +
                  " are not those that were written; check the disk");
}

fs::path kept_path(const fs::path& folder, const TextsToRead& texts) {
  return folder / (hash_text(static_cast<uint64_t>(texts.key)) + std::string(".tokens"));
}

std::vector<TokenPiece> keep_in(const fs::path& folder, const TextsToRead& texts) {
  const fs::path path = kept_path(folder, texts);
  const MakingScope one_process(folder);
  if (auto kept = open_kept(path, texts)) return std::move(*kept);  // of another process meanwhile
  std::error_code none;
  if (fs::exists(path, none)) {
    log("[" + texts.what + "] " + path.string() +
        " is damaged or not ours; its token ids are made anew");
  }
  tell_made(texts, make_kept(path, texts), ", kept in " + path.string());
  return pieces_of_made(path, texts);
}

// The file is removed once it is mapped, so that its bytes are freed when the process ends.
std::vector<TokenPiece> keep_aside(const TextsToRead& texts) {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) {
    throw DataError("[" + texts.what + "] there is no folder for the token ids of the text (" +
                    error.message() + "); set TMPDIR to one");
  }
  const fs::path path = temporary_name(folder / "tokens");
  struct Removed {
    const fs::path& path;
    ~Removed() { ::unlink(path.c_str()); }
  } const removed{path};
  try {
    tell_made(texts, make_kept(path, texts), "");
  } catch (const RunError& error) {
    throw DiskError(std::string(error.what()) + ", or set TMPDIR to a folder with more space");
  }
  return pieces_of_made(path, texts);
}

}  // namespace

void read_texts(const FileList& list, const Tokenizer& tokenizer, const TokenizerFiles& files,
                const fs::path& cache, const std::string& what, TokenStream& stream) {
  TextsToRead texts{.list = list, .tokenizer = tokenizer, .what = what};
  look_at(texts, files);
  std::optional<std::vector<TokenPiece>> kept;  // also read if nothing can be written
  if (!cache.empty()) kept = open_kept(kept_path(cache, texts), texts);
  const bool is_kept = !cache.empty() && !kept && can_write_in(cache);
  if (!cache.empty() && !kept && !is_kept) {
    log("[" + what + "] " + cache.string() +
        " cannot be written; the token ids of the text are not kept for later starts");
  }
  if (!cache.empty()) remove_leftovers(cache);
  if (kept) {
    stream.pieces = std::move(*kept);
  } else {
    stream.pieces = is_kept ? keep_in(cache, texts) : keep_aside(texts);
  }
  stream.type = id_width(tokenizer) == 2 ? TokenType::uint16 : TokenType::uint32;
  stream.prints = {texts.contents, texts.tokenizer_print};
}

fs::path token_cache_beside(const fs::path& run_folder) {
  const fs::path place = fs::absolute(run_folder).lexically_normal();
  return (place.has_filename() ? place.parent_path() : place.parent_path().parent_path()) /
         ".tokens";
}

}  // namespace tanren
