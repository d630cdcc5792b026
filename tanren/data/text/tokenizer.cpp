#include "tanren/data/text/tokenizer.h"

#include "tanren/base/file.h"
#include "tanren/data/text/tokenizer_files.h"

#include <algorithm>

namespace tanren {

namespace fs = std::filesystem;

using tokenizer_files::fail;

namespace {

constexpr const char* kMainFiles[] = {"tokenizer.json", "vocab.txt", "vocab.json"};
constexpr const char* kMerges = "merges.txt";  // beside vocab.json
constexpr const char* kSideFiles[] = {"tokenizer_config.json", "special_tokens_map.json",
                                      "added_tokens.json"};

std::string main_file(const TokenizerFiles& files, const fs::path& where) {
  for (const char* name : kMainFiles) {
    if (files.count(name) > 0) return name;
  }
  fail(where, "holds no tokenizer.json, vocab.txt or vocab.json");
}

// `path` stands for the main file in errors.
std::unique_ptr<Tokenizer> load(const TokenizerFiles& files, const fs::path& path) {
  const std::string main = main_file(files, path);
  const tokenizer_files::NamedText file{files.at(main), path};
  if (main == "vocab.txt") return from_vocab_txt(file, files);
  if (main == "vocab.json") return from_vocab_json(file, files);
  return from_tokenizer_json(file);
}

int64_t size_of(const TokenIds& ids) { return static_cast<int64_t>(ids.size()); }

void append(TokenIds& all, const TokenIds& ids) { all.insert(all.end(), ids.begin(), ids.end()); }

void cut_to(TokenIds& ids, int64_t room) {
  ids.resize(std::min(ids.size(), static_cast<size_t>(std::max<int64_t>(room, 0))));
}

}  // namespace

int64_t Tokenizer::frame_size(bool pair) const {
  return pair ? size_of(frame_.pair_begin) + size_of(frame_.pair_between) + size_of(frame_.pair_end)
              : size_of(frame_.begin) + size_of(frame_.end);
}

TokenIds Tokenizer::encode_framed(std::string_view text, int64_t max_length) const {
  TokenIds ids = encode(text);
  if (max_length > 0) cut_to(ids, max_length - frame_size(false));
  ids.insert(ids.begin(), frame_.begin.begin(), frame_.begin.end());
  append(ids, frame_.end);
  return ids;
}

TokenIds Tokenizer::encode_pair(std::string_view a, std::string_view b, int64_t max_length,
                                std::vector<int32_t>* type_ids) const {
  TokenIds first = encode(a), second = encode(b);
  const int64_t room = std::max<int64_t>(max_length - frame_size(true), 0);
  if (max_length > 0 && size_of(first) + size_of(second) > room) {
    const bool swapped = size_of(first) > size_of(second);
    TokenIds& shorter = swapped ? second : first;
    TokenIds& longer = swapped ? first : second;
    cut_to(shorter, room / 2);
    cut_to(longer, room - size_of(shorter));
  }
  TokenIds ids = frame_.pair_begin;
  append(ids, first);
  const size_t split = ids.size() + frame_.second_from.value_or(0);
  append(ids, frame_.pair_between);
  append(ids, second);
  append(ids, frame_.pair_end);
  if (type_ids != nullptr) {
    type_ids->assign(ids.size(), 0);
    if (frame_.second_from) {
      std::fill(type_ids->begin() + static_cast<std::ptrdiff_t>(split), type_ids->end(), 1);
    }
  }
  return ids;
}

TokenizerFiles read_tokenizer_files(const fs::path& path) {
  if (fs::is_directory(path)) {
    for (const char* name : kMainFiles) {
      if (fs::exists(path / name)) return read_tokenizer_files(path / name);
    }
    fail(path, "holds no tokenizer.json, vocab.txt or vocab.json; name the folder that does");
  }
  const std::string main = path.extension() == ".txt"        ? "vocab.txt"
                           : path.filename() == "vocab.json" ? "vocab.json"
                                                             : "tokenizer.json";
  TokenizerFiles files{{main, read_file(path)}};
  const fs::path folder = path.parent_path();
  if (main == "vocab.json") files.emplace(kMerges, read_file(folder / kMerges));
  for (const char* name : kSideFiles) {
    if (fs::exists(folder / name)) files.emplace(name, read_file(folder / name));
  }
  return files;
}

std::vector<std::string> tokenizer_file_names() {
  std::vector<std::string> names(std::begin(kMainFiles), std::end(kMainFiles));
  names.emplace_back(kMerges);
  names.insert(names.end(), std::begin(kSideFiles), std::end(kSideFiles));
  return names;
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files, const fs::path& where) {
  return load(files, where / main_file(files, where));
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  const TokenizerFiles files = read_tokenizer_files(path);
  return load(files, fs::is_directory(path) ? path / main_file(files, path) : path);
}

}  // namespace tanren
