#include "tanren/data/text/tokenize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/data/text/encoding.h"

#include <algorithm>
#include <deque>
#include <future>
#include <thread>
#include <utility>

namespace tanren {

namespace {

constexpr const char* kAdvice =
    "take single stray bytes out (iconv -c -f UTF-8 -t UTF-8), or convert a file that is all "
    "LATIN1 "
    "(iconv -f LATIN1 -t UTF-8)";

TextCheck check_of(const std::filesystem::path& path, const std::string& what) {
  return {"[" + what + "] " + path.string(), kAdvice};
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
  Chunks(const std::filesystem::path& path, const std::string& what, size_t size,
         const Tokenizer& tokenizer)
      : file_(open_file(path)), tokenizer_(tokenizer), check_(check_of(path, what)) {
    // A small file takes no more memory than it has.
    size_ = file_.size > 0 ? std::min<size_t>(size, file_.size + 1) : size;
  }

  // Returns the next chunk; empty at the end. Longer than asked only if no place to cut was found.
  std::string next() {
    std::string chunk = std::move(rest_);
    rest_.clear();
    for (size_t cut = 0; file_.stream && cut == 0;) {
      const size_t had = chunk.size();
      chunk.resize(had + size_);
      chunk.resize(had + file_.read(chunk.data() + had, size_));
      // Bytes before `had` are not searched. They have no place to cut, or are the last chunk's
      // rest, which is shorter than a chunk.
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
  size_t size_ = 0;
  const Tokenizer& tokenizer_;
  TextCheck check_;
  std::string rest_;
};

template <typename Id>
std::string narrow_ids(const TokenIds& ids) {
  const std::vector<Id> narrow(ids.begin(), ids.end());
  return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(Id)};
}

}  // namespace

int64_t id_width(const Tokenizer& tokenizer) { return tokenizer.vocab_size() <= 65536 ? 2 : 4; }

std::string id_bytes(const TokenIds& ids, int64_t width) {
  return width == 2 ? narrow_ids<uint16_t>(ids) : narrow_ids<uint32_t>(ids);
}

void check_text(const std::filesystem::path& text, const std::string& what) {
  OpenFile file = open_file(text);
  if (file.size == 0) return;  // a pipe can be read only once
  constexpr size_t kBlock = size_t{4} << 20;
  const size_t size = std::min<size_t>(kBlock, file.size + 1);
  TextCheck check = check_of(text, what);
  std::string rest;  // the last character of a block, perhaps incomplete
  while (file.stream) {
    std::string block = std::move(rest);
    const size_t had = block.size();
    block.resize(had + size);
    block.resize(had + file.read(block.data() + had, size));
    const size_t cut = file.stream ? last_character(block) : block.size();
    rest = block.substr(cut);
    block.resize(cut);
    check.add(block);
  }
}

std::vector<TokenizedFile> tokenize_texts(const std::vector<std::filesystem::path>& texts,
                                          const std::string& what, const Tokenizer& tokenizer,
                                          int64_t threads, const SeeIds& see,
                                          const SeeChunk& see_chunk, int64_t chunk_bytes) {
  struct Work {
    size_t text = 0;
    std::future<TokenIds> ids;
  };
  const auto at_once = static_cast<size_t>(std::max<int64_t>(threads, 1) * 2);
  const auto policy = threads > 1 ? std::launch::async : std::launch::deferred;
  std::vector<TokenizedFile> results(texts.size());
  std::deque<Work> work;
  const auto finish_first = [&] {
    const TokenIds ids = work.front().ids.get();
    const size_t text = work.front().text;
    work.pop_front();
    results[text].tokens += static_cast<int64_t>(ids.size());
    see(text, ids);
  };
  for (size_t text = 0; text < texts.size(); ++text) {
    results[text].width = id_width(tokenizer);
    Chunks chunks(texts[text], what, static_cast<size_t>(chunk_bytes), tokenizer);
    for (std::string chunk = chunks.next(); !chunk.empty(); chunk = chunks.next()) {
      if (work.size() == at_once) finish_first();
      see_chunk(text, chunk);
      results[text].bytes += static_cast<int64_t>(chunk.size());
      work.push_back({text, std::async(policy, [&tokenizer, chunk = std::move(chunk)] {
                        return tokenizer.encode(chunk);
                      })});
    }
  }
  while (!work.empty()) finish_first();
  return results;
}

TokenizedFile tokenize_file(const std::filesystem::path& text, const std::filesystem::path& out,
                            const Tokenizer& tokenizer, int64_t threads, int64_t chunk_bytes) {
  check_text(text, "convert");  // before any work: a bad byte at the end must not cost hours
  TokenizedFile result;
  write_file(out, [&](const Write& write) {
    const auto take = [&](size_t, const TokenIds& ids) {
      write(id_bytes(ids, id_width(tokenizer)));
    };
    const auto ignore = [](size_t, std::string_view) {};
    result =
        tokenize_texts({text}, "convert", tokenizer, threads, take, ignore, chunk_bytes).front();
  });
  return result;
}

}  // namespace tanren
