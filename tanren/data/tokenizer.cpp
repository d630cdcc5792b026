#include "tanren/data/tokenizer.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/one_line.h"
#include "tanren/data/byte_bpe.h"
#include "tanren/data/wordpiece.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw DataError("[tokenizer] " + path.string() + ": " + one_line(what));
}

// A file's text, and the path that stands for it in errors.
struct NamedText {
  const std::string& text;
  fs::path path;
};

Json read_json(const NamedText& file) {
  const fs::path& path = file.path;
  auto json = Json::parse(file.text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail(path, "is no JSON object; download it again");
  return json;
}

std::string text_or(const Json& json, const char* key, const std::string& otherwise) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : otherwise;
}
bool truth_or(const Json& json, const char* key, bool otherwise) {
  return json.contains(key) && json[key].is_boolean() ? json[key].get<bool>() : otherwise;
}

// {"token": id, …} → tokens by id.
std::vector<std::string> vocabulary_of(const Json& json, const fs::path& path) {
  if (!json.is_object() || json.empty()) fail(path, "has no vocabulary; download it again");
  // A hostile id must not become an allocation: ids are dense but for a few holes.
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

std::vector<SpecialToken> specials_of(const Json& json, std::vector<std::string>& vocabulary,
                                      const fs::path& path) {
  std::vector<SpecialToken> specials;
  if (!json.contains("added_tokens")) return specials;
  const auto limit = static_cast<int64_t>(vocabulary.size()) * 2 + 65536;
  for (const auto& token : json["added_tokens"]) {
    const bool usable = token.is_object() && token.contains("content") &&
                        token["content"].is_string() && token.contains("id") &&
                        token["id"].is_number_integer();
    const int64_t id = usable ? token["id"].get<int64_t>() : -1;
    if (id < 0 || id >= limit || token["content"].get<std::string>().empty()) {
      fail(path, "an added token has no text or no usable id; download it again");
    }
    specials.push_back({token["content"].get<std::string>(), static_cast<int32_t>(id),
                        truth_or(token, "lstrip", false), truth_or(token, "rstrip", false)});
    if (static_cast<size_t>(id) >= vocabulary.size())
      vocabulary.resize(static_cast<size_t>(id) + 1);
    vocabulary[static_cast<size_t>(id)] = specials.back().text;
  }
  return specials;
}

// What a template puts before and after a text.
Tokenizer::Frame frame_of(const Json& json, const std::vector<SpecialToken>& specials,
                          const fs::path& path) {
  Tokenizer::Frame frame;
  if (!json.contains("post_processor") || json["post_processor"].is_null()) return frame;
  const auto& post = json["post_processor"];
  const std::string kind = text_or(post, "type", "");
  const auto id_of = [&](const std::string& text) -> std::optional<int32_t> {
    for (const auto& special : specials) {
      if (special.text == text) return special.id;
    }
    fail(path, "its template uses " + text + ", which is no added token; download it again");
  };
  if (kind == "ByteLevel") return frame;
  if (kind == "BertProcessing" || kind == "RobertaProcessing") {
    if (!post.contains("cls") || !post.contains("sep")) fail(path, "lacks cls or sep");
    frame.begin = id_of(post["cls"].at(0).get<std::string>());
    frame.separator = id_of(post["sep"].at(0).get<std::string>());
    return frame;
  }
  if (kind != "TemplateProcessing" || !post.contains("single") || !post["single"].is_array()) {
    fail(path, "its post_processor \"" + kind + "\" is not read here; export one with a template");
  }
  bool past_text = false;
  for (const auto& part : post["single"]) {
    if (part.contains("Sequence")) {
      past_text = true;
    } else if (part.contains("SpecialToken")) {
      auto& place = past_text ? frame.separator : frame.begin;
      place = id_of(text_or(part["SpecialToken"], "id", ""));
    }
  }
  return frame;
}

std::unique_ptr<Tokenizer> wordpiece_of(const Json& json, const fs::path& path) {
  const auto& model = json["model"];
  WordPieceOptions options;
  options.vocabulary = vocabulary_of(model.value("vocab", Json()), path);
  options.unknown = text_or(model, "unk_token", options.unknown);
  options.prefix = text_or(model, "continuing_subword_prefix", options.prefix);
  if (model.contains("max_input_chars_per_word")) {
    options.max_characters = model["max_input_chars_per_word"].get<int64_t>();
  }
  const auto normalizer = json.value("normalizer", Json());
  if (normalizer.is_null()) {
    options.clean = options.set_cjk_apart = options.strip_accents = options.lowercase = false;
  } else if (text_or(normalizer, "type", "") == "BertNormalizer") {
    options.clean = truth_or(normalizer, "clean_text", true);
    options.set_cjk_apart = truth_or(normalizer, "handle_chinese_chars", true);
    options.lowercase = truth_or(normalizer, "lowercase", true);
    options.strip_accents = truth_or(normalizer, "strip_accents", options.lowercase);
  } else {
    fail(path, "its normalizer \"" + text_or(normalizer, "type", "?") +
                   "\" is not read here; WordPiece goes with BertNormalizer");
  }
  const auto pre = json.value("pre_tokenizer", Json());
  if (!pre.is_object() || text_or(pre, "type", "") != "BertPreTokenizer") {
    fail(path, "its pre_tokenizer is not read here; WordPiece goes with BertPreTokenizer");
  }
  options.specials = specials_of(json, options.vocabulary, path);
  options.frame = frame_of(json, options.specials, path);
  return make_wordpiece(std::move(options), "[tokenizer] " + path.string());
}

std::unique_ptr<Tokenizer> bpe_of(const Json& json, const fs::path& path) {
  const auto& model = json["model"];
  const auto pre = json.value("pre_tokenizer", Json());
  const bool plain = pre.is_object() && text_or(pre, "type", "") == "ByteLevel" &&
                     truth_or(pre, "use_regex", true) && !model.value("byte_fallback", false) &&
                     !model.value("ignore_merges", false) &&
                     json.value("normalizer", Json()).is_null();
  if (!plain) {
    fail(path,
         "is a BPE of another kind than GPT-2's (byte level with its word pattern); it is not "
         "read here");
  }
  ByteBpeOptions options;
  options.vocabulary = vocabulary_of(model.value("vocab", Json()), path);
  options.add_prefix_space = truth_or(pre, "add_prefix_space", false);
  for (const auto& merge : model.value("merges", Json::array())) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      options.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const auto space = text.find(' ');
    if (space == std::string::npos) fail(path, "a merge is no pair; download it again");
    options.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  options.specials = specials_of(json, options.vocabulary, path);
  options.frame = frame_of(json, options.specials, path);
  return make_byte_bpe(options, "[tokenizer] " + path.string());
}

std::unique_ptr<Tokenizer> from_tokenizer_json(const NamedText& file) {
  const fs::path& path = file.path;
  const Json json = read_json(file);
  if (!json.contains("model") || !json["model"].is_object())
    fail(path, "has no model; download it again");
  const std::string kind = text_or(json["model"], "type", "");
  try {
    if (kind == "WordPiece") return wordpiece_of(json, path);
    if (kind == "BPE") return bpe_of(json, path);
  } catch (const Json::exception& error) {
    fail(path, std::string("a field has the wrong type (") + error.what() + "); download it again");
  }
  fail(path, "its model \"" + kind + "\" is not read here; there are WordPiece and BPE");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

std::unique_ptr<Tokenizer> from_vocab_txt(const NamedText& file, const TokenizerFiles& files) {
  WordPieceOptions options;
  options.vocabulary = lines_of(file.text);
  if (const auto config = files.find("tokenizer_config.json"); config != files.end()) {
    const Json json = read_json({config->second, file.path.parent_path() / config->first});
    options.lowercase = truth_or(json, "do_lower_case", true);
    options.strip_accents = truth_or(json, "strip_accents", options.lowercase);
    options.set_cjk_apart = truth_or(json, "tokenize_chinese_chars", true);
  }
  for (const char* text : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const auto found = std::find(options.vocabulary.begin(), options.vocabulary.end(), text);
    if (found == options.vocabulary.end()) continue;
    const auto id = static_cast<int32_t>(found - options.vocabulary.begin());
    options.specials.push_back({text, id});
    if (*found == "[CLS]") options.frame.begin = id;
    if (*found == "[SEP]") options.frame.separator = id;
  }
  return make_wordpiece(std::move(options), "[tokenizer] " + file.path.string());
}

std::unique_ptr<Tokenizer> from_vocab_json(const NamedText& file, const TokenizerFiles& files) {
  const fs::path& path = file.path;
  ByteBpeOptions options;
  options.vocabulary = vocabulary_of(read_json(file), path);
  const auto merges = path.parent_path() / "merges.txt";
  const auto pairs = files.find("merges.txt");
  if (pairs == files.end()) fail(path, "has no merges.txt beside it; put it there");
  for (const auto& line : lines_of(pairs->second)) {
    if (line.empty() || line.rfind("#version", 0) == 0) continue;
    const auto space = line.find(' ');
    if (space == std::string::npos)
      fail(merges, "the line \"" + line + "\" is no pair; download it again");
    options.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  const auto end = std::find(options.vocabulary.begin(), options.vocabulary.end(), "<|endoftext|>");
  if (end != options.vocabulary.end()) {
    options.specials.push_back(
        {"<|endoftext|>", static_cast<int32_t>(end - options.vocabulary.begin())});
  }
  return make_byte_bpe(options, "[tokenizer] " + path.string());
}

constexpr const char* kMainFiles[] = {"tokenizer.json", "vocab.txt", "vocab.json"};

std::string main_file(const TokenizerFiles& files, const fs::path& where) {
  for (const char* name : kMainFiles) {
    if (files.count(name) > 0) return name;
  }
  fail(where, "holds no tokenizer.json, vocab.txt or vocab.json");
}

// `path` stands for the main file in errors.
std::unique_ptr<Tokenizer> load(const TokenizerFiles& files, const fs::path& path) {
  const std::string main = main_file(files, path);
  const NamedText file{files.at(main), path};
  if (main == "vocab.txt") return from_vocab_txt(file, files);
  if (main == "vocab.json") return from_vocab_json(file, files);
  return from_tokenizer_json(file);
}

}  // namespace

TokenIds Tokenizer::encode_framed(std::string_view text, int64_t max_length) const {
  TokenIds ids = encode(text);
  const int64_t around = frame_.begin.has_value() + frame_.separator.has_value();
  if (max_length > 0 && static_cast<int64_t>(ids.size()) + around > max_length) {
    ids.resize(static_cast<size_t>(std::max<int64_t>(max_length - around, 0)));
  }
  if (frame_.begin) ids.insert(ids.begin(), *frame_.begin);
  if (frame_.separator) ids.push_back(*frame_.separator);
  return ids;
}

TokenIds Tokenizer::encode_pair(std::string_view a, std::string_view b, int64_t max_length,
                                std::vector<int32_t>* type_ids) const {
  TokenIds first = encode(a), second = encode(b);
  const int64_t around = frame_.begin.has_value() + 2 * frame_.separator.has_value();
  while (max_length > 0 && !(first.empty() && second.empty()) &&
         static_cast<int64_t>(first.size() + second.size()) + around > max_length) {
    (first.size() > second.size() ? first : second).pop_back();
  }
  TokenIds ids;
  if (frame_.begin) ids.push_back(*frame_.begin);
  ids.insert(ids.end(), first.begin(), first.end());
  if (frame_.separator) ids.push_back(*frame_.separator);
  const size_t split = ids.size();
  ids.insert(ids.end(), second.begin(), second.end());
  if (frame_.separator) ids.push_back(*frame_.separator);
  if (type_ids != nullptr) {
    type_ids->assign(split, 0);
    type_ids->resize(ids.size(), 1);
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
  if (main == "vocab.json") files.emplace("merges.txt", read_file(folder / "merges.txt"));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (fs::exists(folder / name)) files.emplace(name, read_file(folder / name));
  }
  return files;
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files, const fs::path& where) {
  return load(files, where / main_file(files, where));
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  const TokenizerFiles files = read_tokenizer_files(path);
  return load(files, fs::is_directory(path) ? path / main_file(files, path) : path);
}

}  // namespace tanren
