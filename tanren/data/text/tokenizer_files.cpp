#include "tanren/data/text/tokenizer_files.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tanren::tokenizer_files {

namespace fs = std::filesystem;

void fail(const fs::path& path, const std::string& what) {
  throw DataError("[tokenizer] " + path.string() + ": " + one_line(what));
}

Json read_json(const NamedText& file) {
  auto json = parse_json(file.text);
  if (json.is_discarded() || !json.is_object()) {
    fail(file.path, "is no JSON object; download it again");
  }
  return json;
}

std::string text_or(const Json& json, const char* key, const std::string& otherwise) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : otherwise;
}
bool truth_or(const Json& json, const char* key, bool otherwise) {
  return json.contains(key) && json[key].is_boolean() ? json[key].get<bool>() : otherwise;
}

std::vector<std::string> vocabulary_of(const Json& json, const fs::path& path) {
  if (!json.is_object() || json.empty()) fail(path, "has no vocabulary; download it again");
  // The limit keeps an untrusted id from causing a huge allocation. Valid ids have only a few gaps.
  const auto limit = static_cast<int64_t>(json.size()) * 2 + 1024;
  std::vector<std::string> tokens;
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= limit) {
      fail(path, "token " + token + " has no usable id; download it again");
    }
    const auto index = id.get<size_t>();
    if (index >= tokens.size()) tokens.resize(index + 1);
    tokens[index] = token;
  }
  return tokens;
}

GivenToken token_of(const Json& json, const fs::path& path) {
  GivenToken given;
  if (json.is_object()) given.token.text = text_or(json, "content", "");
  if (given.token.text.empty()) fail(path, "an added token has no text; download it again");
  given.special = truth_or(json, "special", false);
  given.token.strip_left = truth_or(json, "lstrip", false);
  given.token.strip_right = truth_or(json, "rstrip", false);
  given.token.single_word = truth_or(json, "single_word", false);
  given.token.normalized = truth_or(json, "normalized", !given.special);
  if (json.contains("id") && json["id"].is_number_integer()) given.id = json["id"].get<int64_t>();
  return given;
}

std::vector<AddedToken> with_ids(std::vector<GivenToken> tokens,
                                 const std::vector<std::string>& vocabulary, size_t vocabulary_size,
                                 const fs::path& path) {
  std::unordered_map<std::string_view, int64_t> known;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary[id].empty()) known[vocabulary[id]] = static_cast<int64_t>(id);
  }
  std::set<std::string_view> seen;
  auto next = static_cast<int64_t>(vocabulary_size);
  for (auto& given : tokens) {
    const std::string& text = given.token.text;
    if (!seen.insert(text).second) {
      fail(path, "the added token " + text + " comes twice; drop one");
    }
    const auto found = known.find(text);
    const int64_t id = found != known.end() ? found->second : next;
    if (given.id && *given.id != id) {
      fail(path, fmt::format("the added token {} has the id {}, Hugging Face gives it {}{}; fix "
                             "its id or save the tokenizer again",
                             text, *given.id, id,
                             found != known.end() ? ", which it has in the vocabulary"
                                                  : ", the next after the vocabulary"));
    }
    given.token.id = static_cast<int32_t>(id);
    given.token.special = given.special;
    next = std::max(next, id + 1);
  }
  std::vector<AddedToken> added;
  for (auto& given : tokens) added.push_back(std::move(given.token));
  return added;
}

}  // namespace tanren::tokenizer_files
