#include "tanren/data/text/tokenizer.h"
#include "tests/fuzz/targets.h"

#include <algorithm>

namespace tanren::fuzz {

namespace {

std::filesystem::path files_of(const Scratch& scratch, std::string_view bytes) {
  const char kind = bytes.empty() ? '0' : bytes.front();
  if (!bytes.empty()) bytes.remove_prefix(1);
  const size_t cut = std::min(bytes.find('\x1e'), bytes.size());
  const auto first = bytes.substr(0, cut);
  const auto second = bytes.substr(std::min(cut + 1, bytes.size()));
  switch (kind) {
    case '1':
      scratch.file("tokenizer_config.json", second);
      return scratch.file("vocab.txt", first);
    case '2': scratch.file("merges.txt", second); return scratch.file("vocab.json", first);
    default: return scratch.file("tokenizer.json", bytes);
  }
}

}  // namespace

bool tokenizer(std::string_view bytes) {
  static const Scratch scratch;
  const auto path = files_of(scratch, bytes);
  return is_read([&] {
    const auto loaded = load_tokenizer(path);
    // The input itself is also encoded as text: no made-up text fits its vocabulary better.
    const std::string text = "The Blade's \xc3\xa9\xe4\xb8\xad \xff[MASK] [SEP]1234\n\n  \t";
    loaded->decode(loaded->encode(text));
    loaded->decode(loaded->encode(bytes.substr(0, 2048)));
    loaded->encode_framed(text, 3);
    std::vector<int32_t> types;
    loaded->encode_pair(text, "b", 8, &types);
    loaded->id_of("[CLS]");
  });
}

}  // namespace tanren::fuzz
