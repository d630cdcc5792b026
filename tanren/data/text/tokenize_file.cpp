#include "tanren/data/text/tokenize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/data/text/encoding.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <string>
#include <thread>

namespace tanren {

namespace {

constexpr const char* kAdvice =
    "take single stray bytes out (iconv -c -f UTF-8 -t UTF-8), or convert a file that is all "
    "LATIN1 "
    "(iconv -f LATIN1 -t UTF-8)";

// Checks the whole file before any work: a bad byte at the end must not cost hours.
void check_whole(const std::filesystem::path& path) {
  OpenFile file = open_file(path);
  if (file.size == 0) return;  // a pipe can be read only once
  constexpr size_t kBlock = size_t{4} << 20;
  TextCheck check("[convert] " + path.string(), kAdvice);
  std::string rest;  // the last character of a block, perhaps incomplete
  while (file.stream) {
    std::string block = std::move(rest);
    const size_t had = block.size();
    block.resize(had + kBlock);
    block.resize(had + file.read(block.data() + had, kBlock));
    const size_t cut = file.stream ? last_character(block) : block.size();
    rest = block.substr(cut);
    block.resize(cut);
    check.add(block);
  }
}

// The last place in `text` from `from` on where it may be cut; 0 if there is none.
size_t last_cut(const std::string& text, size_t from, const Tokenizer& tokenizer) {
  for (size_t at = text.size(); at-- > std::max<size_t>(from, 1);) {
    if (tokenizer.may_cut(text[at - 1], text[at])) return at;
  }
  return 0;
}

// Cuts a file into chunks that can be tokenized alone.
class Chunks {
 public:
  Chunks(const std::filesystem::path& path, size_t size, const Tokenizer& tokenizer)
      : file_(open_file(path)),
        size_(size),
        tokenizer_(tokenizer),
        check_("[convert] " + path.string(), kAdvice) {}

  // Returns the next chunk; empty at the end. Longer than asked only if no place to cut was found.
  std::string next() {
    std::string chunk = std::move(rest_);
    rest_.clear();
    for (size_t cut = 0; file_.stream && cut == 0;) {
      const size_t had = chunk.size();
      chunk.resize(had + size_);
      chunk.resize(had + file_.read(chunk.data() + had, size_));
      // The bytes before `had` have no place to cut, or are a rest, which is shorter than a chunk.
      cut = file_.stream ? last_cut(chunk, had, tokenizer_) : 0;
      if (cut == 0) continue;
      rest_ = chunk.substr(cut);
      chunk.resize(cut);
    }
    check_.add(chunk);
    return chunk;
  }

 private:
  OpenFile file_;
  size_t size_;
  const Tokenizer& tokenizer_;
  TextCheck check_;
  std::string rest_;
};

template <typename Id>
void write_ids(const Write& write, const TokenIds& ids) {
  std::vector<Id> narrow(ids.begin(), ids.end());
  write({reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(Id)});
}

}  // namespace

TokenizedFile tokenize_file(const std::filesystem::path& text, const std::filesystem::path& out,
                            const Tokenizer& tokenizer, int64_t threads, int64_t chunk_bytes) {
  check_whole(text);
  Chunks chunks(text, static_cast<size_t>(chunk_bytes), tokenizer);
  TokenizedFile result;
  result.width = tokenizer.vocab_size() <= 65536 ? 2 : 4;
  write_file(out, [&](const Write& write) {
    for (bool more = true; more;) {
      std::vector<std::future<TokenIds>> work;
      for (int64_t i = 0; i < std::max<int64_t>(threads, 1) * 2; ++i) {
        std::string chunk = chunks.next();
        more = !chunk.empty();
        if (!more) break;
        result.bytes += static_cast<int64_t>(chunk.size());
        const auto policy = threads > 1 ? std::launch::async : std::launch::deferred;
        work.push_back(std::async(
            policy, [&tokenizer, chunk = std::move(chunk)] { return tokenizer.encode(chunk); }));
      }
      for (auto& part : work) {
        const TokenIds ids = part.get();
        result.tokens += static_cast<int64_t>(ids.size());
        result.width == 2 ? write_ids<uint16_t>(write, ids) : write_ids<uint32_t>(write, ids);
      }
    }
  });
  return result;
}

}  // namespace tanren
