// tokenizer.json, as Hugging Face tokenizers writes it.
#include "tanren/base/text.h"
#include "tanren/data/text/byte_bpe.h"
#include "tanren/data/text/tokenizer_files.h"
#include "tanren/data/text/wordpiece.h"

namespace tanren::tokenizer_files {

namespace fs = std::filesystem;

namespace {

std::vector<AddedToken> added_of(const Json& json, const std::vector<std::string>& vocabulary,
                                 const fs::path& path) {
  std::vector<GivenToken> tokens;
  for (const auto& token : json.value("added_tokens", Json::array())) {
    tokens.push_back(token_of(token, path));
    if (!tokens.back().id) {
      fail(path,
           "the added token " + tokens.back().token.text + " has no usable id; download it again");
    }
  }
  return with_ids(std::move(tokens), vocabulary, json["model"]["vocab"].size(), path);
}

constexpr size_t kMostPieces = 1024;  // of a template: a few around each text

// Reads the tokens that a post-processor puts around a text or a pair of texts.
class FrameReader {
 public:
  FrameReader(const Json& post, int64_t vocab_size, const fs::path& path)
      : post_(post), vocab_size_(vocab_size), path_(path) {}

  Tokenizer::Frame read() const {
    if (post_.is_null()) return {};
    const std::string kind = text_or(post_, "type", "");
    if (kind == "ByteLevel") return {};
    if (kind == "BertProcessing" || kind == "RobertaProcessing") {
      if (!post_.contains("cls") || !post_.contains("sep")) fail(path_, "lacks cls or sep");
      const TokenIds cls{id_of(post_["cls"].at(1))}, sep{id_of(post_["sep"].at(1))};
      if (kind == "BertProcessing") return {cls, sep, cls, sep, sep, 1};
      return {cls, sep, cls, {sep[0], sep[0]}, sep, std::nullopt};
    }
    if (kind != "TemplateProcessing" || !post_.contains("single") || !post_["single"].is_array()) {
      fail(path_,
           "its post_processor \"" + kind + "\" is not read here; export one with a template");
    }
    Tokenizer::Frame frame;
    const auto single = sections(post_["single"], {"A"});
    frame.begin = ids_of(single[0]);
    frame.end = ids_of(single[1]);
    if (!post_.contains("pair")) return frame;
    const auto pair = sections(post_["pair"], {"A", "B"});
    frame.pair_begin = ids_of(pair[0]);
    frame.pair_between = ids_of(pair[1]);
    frame.pair_end = ids_of(pair[2]);
    frame.second_from = second_from(pair);
    return frame;
  }

 private:
  struct Piece {
    int32_t id = 0;
    int64_t type = 0;
  };
  struct Section {
    std::vector<Piece> pieces;
    int64_t text_type = 0;  // of the text that follows
  };

  [[noreturn]] void refuse() const {
    fail(path_,
         "its template is of another form than tokens around one text, or around A and B, with "
         "types "
         "0 and then 1; it is not read here");
  }

  int32_t id_of(const Json& json) const {
    const int64_t id = json.is_number_integer() ? json.get<int64_t>() : -1;
    if (id < 0 || id >= vocab_size_) fail(path_, "its post_processor has no usable id");
    return static_cast<int32_t>(id);
  }

  // The special tokens before, between and after the texts, which come in the order of `texts`.
  std::vector<Section> sections(const Json& parts, const std::vector<std::string>& texts) const {
    std::vector<Section> found(1);
    const auto known = post_.value("special_tokens", Json::object());
    size_t pieces = 0;
    for (const auto& part : parts) {
      if (part.contains("Sequence")) {
        const auto& sequence = part["Sequence"];
        if (found.size() > texts.size() || text_or(sequence, "id", "") != texts[found.size() - 1]) {
          refuse();
        }
        found.back().text_type = sequence.value("type_id", int64_t{0});
        found.emplace_back();
      } else if (part.contains("SpecialToken")) {
        const auto& token = part["SpecialToken"];
        const std::string name = text_or(token, "id", "");
        if (!known.contains(name)) {
          fail(path_, "its template uses " + name + ", which special_tokens lacks");
        }
        for (const auto& id : known[name].at("ids")) {
          if (++pieces > kMostPieces) {
            fail(path_,
                 fmt::format("its template has more than {} special tokens; download it again",
                             kMostPieces));
          }
          found.back().pieces.push_back({id_of(id), token.value("type_id", int64_t{0})});
        }
      }
    }
    if (found.size() != texts.size() + 1) refuse();
    return found;
  }

  static TokenIds ids_of(const Section& section) {
    TokenIds ids;
    for (const auto& piece : section.pieces) ids.push_back(piece.id);
    return ids;
  }

  std::optional<size_t> second_from(const std::vector<Section>& pair) const {
    const auto& between = pair[1].pieces;
    const int64_t second = pair[1].text_type;
    size_t from = 0;
    while (from < between.size() && between[from].type == 0) ++from;
    const auto all = [](const std::vector<Piece>& pieces, size_t begin, int64_t type) {
      for (size_t i = begin; i < pieces.size(); ++i) {
        if (pieces[i].type != type) return false;
      }
      return true;
    };
    const bool fine = all(pair[0].pieces, 0, 0) && pair[0].text_type == 0 &&
                      (second == 0 || second == 1) && all(between, from, 1) &&
                      (second == 1 || from == between.size()) && all(pair[2].pieces, 0, second);
    if (!fine) refuse();
    return second == 0 ? std::nullopt : std::optional(from);
  }

  const Json& post_;
  int64_t vocab_size_;
  const fs::path& path_;
};

Tokenizer::Frame frame_of(const Json& json, const std::vector<std::string>& vocabulary,
                          const std::vector<AddedToken>& added, const fs::path& path) {
  auto size = static_cast<int64_t>(vocabulary.size());
  for (const auto& token : added) size = std::max<int64_t>(size, token.id + 1);
  const Json post = json.value("post_processor", Json());
  return FrameReader(post, size, path).read();
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
  options.added = added_of(json, options.vocabulary, path);
  options.frame = frame_of(json, options.vocabulary, options.added, path);
  return make_wordpiece(std::move(options), "[tokenizer] " + path.string());
}

std::unique_ptr<Tokenizer> bpe_of(const Json& json, const fs::path& path) {
  const auto& model = json["model"];
  const auto pre = json.value("pre_tokenizer", Json());
  const auto dropout = model.value("dropout", Json());
  const bool plain =
      pre.is_object() && text_or(pre, "type", "") == "ByteLevel" &&
      truth_or(pre, "use_regex", true) && !truth_or(model, "byte_fallback", false) &&
      !truth_or(model, "ignore_merges", false) && json.value("normalizer", Json()).is_null() &&
      text_or(model, "continuing_subword_prefix", "").empty() &&
      text_or(model, "end_of_word_suffix", "").empty() && (dropout.is_null() || dropout == 0);
  if (!plain) {
    fail(path,
         "is a BPE of another kind than GPT-2's (byte level with its word pattern, without "
         "dropout); "
         "it is not read here");
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
  options.added = added_of(json, options.vocabulary, path);
  options.frame = frame_of(json, options.vocabulary, options.added, path);
  return make_byte_bpe(options, "[tokenizer] " + path.string());
}

}  // namespace

std::unique_ptr<Tokenizer> from_tokenizer_json(const NamedText& file) {
  const fs::path& path = file.path;
  const Json json = read_json(file);
  if (!json.contains("model") || !json["model"].is_object()) {
    fail(path, "has no model; download it again");
  }
  const std::string kind = text_or(json["model"], "type", "");
  try {
    if (kind == "WordPiece") return wordpiece_of(json, path);
    if (kind == "BPE") return bpe_of(json, path);
  } catch (const Json::exception& error) {
    fail(path, std::string("a field has the wrong type (") + error.what() + "); download it again");
  }
  fail(path, "its model \"" + kind + "\" is not read here; there are WordPiece and BPE");
}

}  // namespace tanren::tokenizer_files
