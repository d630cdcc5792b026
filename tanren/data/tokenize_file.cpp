#include "tanren/data/tokenize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"

#include <algorithm>
#include <future>
#include <string>
#include <thread>

namespace tanren {

namespace {

bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

// The last place in `text` where white space begins after a word; 0 if there is none.
size_t last_cut(const std::string& text) {
  for (size_t at = text.size(); at-- > 1;) {
    // A byte of 0x80 and up may belong to white space that is not ASCII.
    if (is_space(text[at]) && !is_space(text[at - 1]) && (text[at - 1] & '\x80') == 0) return at;
  }
  return 0;
}

// Cuts a file into chunks that can be tokenized by themselves.
class Chunks {
 public:
  Chunks(const std::filesystem::path& path, size_t size) : file_(open_file(path)), size_(size) {}

  // The next chunk; empty at the end. Longer than asked only where no place to cut was found.
  std::string next() {
    std::string chunk = std::move(rest_);
    rest_.clear();
    while (file_.stream) {
      const size_t had = chunk.size();
      chunk.resize(had + size_);
      file_.stream.read(chunk.data() + had, static_cast<std::streamsize>(size_));
      chunk.resize(had + static_cast<size_t>(file_.stream.gcount()));
      const size_t cut = file_.stream ? last_cut(chunk) : 0;
      if (cut == 0) continue;
      rest_ = chunk.substr(cut);
      chunk.resize(cut);
      break;
    }
    return chunk;
  }

 private:
  OpenFile file_;
  size_t size_;
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
  Chunks chunks(text, static_cast<size_t>(chunk_bytes));
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
