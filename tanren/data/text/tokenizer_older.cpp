// The file formats before tokenizer.json: vocab.txt (BERT), vocab.json with merges.txt (GPT-2), and
// the files that transformers keeps beside them. Read as transformers 5 reads them.
#include "tanren/data/text/byte_bpe.h"
#include "tanren/data/text/tokenizer_files.h"
#include "tanren/data/text/wordpiece.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace tanren::tokenizer_files {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

// tokenizer_config.json, special_tokens_map.json and added_tokens.json.
class Beside {
 public:
  Beside(const TokenizerFiles& files, const fs::path& folder) : folder_(folder) {
    config_ = file(files, kConfig);
    const auto decoder = config_.find("added_tokens_decoder");
    if (decoder != config_.end() && decoder->is_object()) {
      for (const auto& [id, token] : decoder->items()) {
        given_[id_of(id)] = token_of(token, folder_ / kConfig);
      }
      return;
    }
    // The files below are older than added_tokens_decoder, and are not read if that key exists.
    given_in_ = kAdded;
    config_.update(file(files, "special_tokens_map.json"));
    std::set<std::string> special;
    for (const char* name : kNames) special.insert(name_of(name, "").value_or(""));
    for (const auto& token : extras()) special.insert(token.token.text);
    const Json added = file(files, kAdded);
    for (const auto& [text, id] : added.items()) {
      if (!id.is_number_integer() || text.empty()) {
        fail(folder_ / kAdded, "token \"" + text + "\" has no text or no usable id; fix it");
      }
      GivenToken token;
      token.token.text = text;
      token.special = special.count(text) > 0;
      token.token.normalized = !token.special;
      given_[id.get<int64_t>()] = std::move(token);
    }
  }

  const Json& config() const { return config_; }

  // The text of a named token; nullopt if the config says null.
  std::optional<std::string> name_of(const char* name, const std::string& otherwise) const {
    const auto found = config_.find(name);
    if (found == config_.end()) return otherwise.empty() ? std::nullopt : std::optional(otherwise);
    if (found->is_null()) return std::nullopt;
    if (found->is_string()) return found->get<std::string>();
    return token_of(*found, folder_ / kConfig).token.text;
  }

  // Every added token in transformers' order: those with ids, then the named ones (from `defaults`
  // if the config lacks them), then the rest.
  std::vector<AddedToken> added(const std::map<std::string, std::string>& defaults,
                                const std::vector<std::string>& vocabulary,
                                size_t vocabulary_size) const {
    std::vector<GivenToken> all;
    std::set<std::string> seen;
    const auto add = [&](GivenToken token) {
      if (seen.insert(token.token.text).second) all.push_back(std::move(token));
    };
    for (const auto& [id, token] : given_) {
      all.push_back(token);
      all.back().id = id;
      seen.insert(token.token.text);
    }
    for (const char* name : kNames) {
      const auto usual = defaults.find(name);
      const auto text = name_of(name, usual == defaults.end() ? "" : usual->second);
      if (!text) continue;
      const auto found = config_.find(name);
      add(found != config_.end() && found->is_object() ? special(*found) : special(*text));
    }
    for (auto& token : extras()) add(std::move(token));
    return with_ids(std::move(all), vocabulary, vocabulary_size, folder_ / given_in_);
  }

  // DataError unless tokenizer_class is one of these classes or not set.
  void expect_class(const std::vector<std::string>& classes) const {
    std::string name = text_or(config_, "tokenizer_class", "");
    constexpr std::string_view kFast = "Fast";
    if (name.size() > kFast.size() && name.ends_with(kFast)) {
      name.resize(name.size() - kFast.size());
    }
    if (name.empty() || std::find(classes.begin(), classes.end(), name) != classes.end()) return;
    fail(folder_ / kConfig, "its class " + name +
                                " makes other ids of these files than are made here; save the "
                                "tokenizer as tokenizer.json with transformers");
  }

 private:
  static constexpr const char* kConfig = "tokenizer_config.json";
  static constexpr const char* kAdded = "added_tokens.json";
  static constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};

  Json file(const TokenizerFiles& files, const char* name) const {
    const auto found = files.find(name);
    return found == files.end() ? Json::object() : read_json({found->second, folder_ / name});
  }

  int64_t id_of(const std::string& text) const {
    constexpr size_t kDigits = 9;
    const bool digits = !text.empty() && text.size() <= kDigits &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    if (!digits)
      fail(folder_ / kConfig, "added_tokens_decoder has the id \"" + text + "\"; fix it");
    return std::stoll(text);
  }

  GivenToken special(const Json& value) const {
    Json json = value.is_string() ? Json{{"content", value}} : value;
    if (json.is_object()) json["special"] = true;
    auto token = token_of(json, folder_ / kConfig);
    token.id.reset();
    return token;
  }

  std::vector<GivenToken> extras() const {
    std::vector<GivenToken> tokens;
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const auto list = config_.find(key);
      if (list == config_.end()) continue;
      for (const auto& value : *list) tokens.push_back(special(value));
    }
    return tokens;
  }

  fs::path folder_;
  const char* given_in_ = kConfig;
  Json config_;
  std::map<int64_t, GivenToken> given_;  // by id
};

int32_t id_in(const std::vector<AddedToken>& added, const std::string& text) {
  const auto found = std::find_if(added.begin(), added.end(),
                                  [&](const AddedToken& token) { return token.text == text; });
  return found->id;
}

std::unique_ptr<Tokenizer> bert_of(const NamedText& file, const TokenizerFiles& files) {
  const Beside beside(files, file.path.parent_path());
  beside.expect_class({"BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer",
                       "ElectraTokenizer", "LxmertTokenizer", "MobileBertTokenizer"});
  WordPieceOptions options;
  options.vocabulary = lines_of(file.text);
  const std::set<std::string_view> distinct(options.vocabulary.begin(), options.vocabulary.end());
  const Json& config = beside.config();
  options.lowercase = truth_or(config, "do_lower_case", true);
  options.strip_accents = truth_or(config, "strip_accents", options.lowercase);
  options.set_cjk_apart = truth_or(config, "tokenize_chinese_chars", true);
  options.unknown = beside.name_of("unk_token", options.unknown).value_or(options.unknown);
  options.added = beside.added({{"unk_token", "[UNK]"},
                                {"sep_token", "[SEP]"},
                                {"pad_token", "[PAD]"},
                                {"cls_token", "[CLS]"},
                                {"mask_token", "[MASK]"}},
                               options.vocabulary, distinct.size());
  const auto cls = beside.name_of("cls_token", "[CLS]"), sep = beside.name_of("sep_token", "[SEP]");
  if (!cls || !sep) fail(file.path, "goes with a cls_token and a sep_token; name them");
  const TokenIds begin{id_in(options.added, *cls)}, end{id_in(options.added, *sep)};
  options.frame = {begin, end, begin, end, end, 1};
  return make_wordpiece(std::move(options), "[tokenizer] " + file.path.string());
}

std::unique_ptr<Tokenizer> gpt2_of(const NamedText& file, const TokenizerFiles& files) {
  const fs::path& path = file.path;
  const Beside beside(files, path.parent_path());
  beside.expect_class({"GPT2Tokenizer"});
  ByteBpeOptions options;
  const Json vocabulary = read_json(file);
  options.vocabulary = vocabulary_of(vocabulary, path);
  const auto merges = path.parent_path() / "merges.txt";
  const auto pairs = files.find("merges.txt");
  if (pairs == files.end()) fail(path, "has no merges.txt beside it; put it there");
  for (const auto& line : lines_of(pairs->second)) {
    if (line.empty() || line.rfind("#version", 0) == 0) continue;
    const auto space = line.find(' ');
    if (space == std::string::npos) {
      fail(merges, "the line \"" + line + "\" is no pair; download it again");
    }
    options.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  const std::string usual = "<|endoftext|>";
  options.added = beside.added({{"bos_token", usual}, {"eos_token", usual}, {"unk_token", usual}},
                               options.vocabulary, vocabulary.size());
  const Json& config = beside.config();
  options.add_prefix_space = truth_or(config, "add_prefix_space", false);
  const auto around = [&](const char* asked, const char* name) {
    const auto text = beside.name_of(name, usual);
    if (!truth_or(config, asked, false)) return TokenIds{};
    if (!text) fail(path, std::string("goes with ") + asked + ", and there is no " + name);
    return TokenIds{id_in(options.added, *text)};
  };
  const TokenIds begin = around("add_bos_token", "bos_token");
  const TokenIds end = around("add_eos_token", "eos_token");
  TokenIds between = end;
  between.insert(between.end(), begin.begin(), begin.end());
  options.frame = {begin, end, begin, between, end, end.size()};
  return make_byte_bpe(options, "[tokenizer] " + path.string());
}

}  // namespace

std::unique_ptr<Tokenizer> from_vocab_txt(const NamedText& file, const TokenizerFiles& files) {
  return bert_of(file, files);
}
std::unique_ptr<Tokenizer> from_vocab_json(const NamedText& file, const TokenizerFiles& files) {
  return gpt2_of(file, files);
}

}  // namespace tanren::tokenizer_files
