#include "tanren/data/text/wordpiece.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/text/unicode.h"

#include <algorithm>
#include <functional>

namespace tanren {

namespace {

// Looks up views without making strings of them.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Ids = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

class WordPiece : public Tokenizer {
 public:
  WordPiece(WordPieceOptions options, const std::string& where)
      : options_(std::move(options)),
        added_(
            options_.added, [this](std::string_view text) { return normalized(text); }, where) {
    frame_ = options_.frame;
    for (size_t id = 0; id < options_.vocabulary.size(); ++id) {
      const auto& token = options_.vocabulary[id];
      ids_.insert_or_assign(token,
                            static_cast<int32_t>(id));  // the last id of a token that comes twice
      const bool continues = token.size() > options_.prefix.size() &&
                             token.compare(0, options_.prefix.size(), options_.prefix) == 0;
      if (continues) {
        inner_.insert_or_assign(token.substr(options_.prefix.size()), static_cast<int32_t>(id));
      }
      longest_ = std::max(longest_, token.size());
    }
    const auto unknown = ids_.find(options_.unknown);
    if (unknown == ids_.end()) {
      throw DataError(where + ": the vocabulary lacks " + one_line(options_.unknown) +
                      "; take the files of one tokenizer");
    }
    unknown_ = unknown->second;
    // Added tokens join the vocabulary last, so that no word is encoded as one of them.
    for (const auto& token : options_.added) {
      auto& vocabulary = options_.vocabulary;
      vocabulary.resize(std::max(vocabulary.size(), static_cast<size_t>(token.id) + 1));
      vocabulary[static_cast<size_t>(token.id)] = token.text;
    }
  }

  TokenIds encode(std::string_view text) const override {
    TokenIds ids;
    added_.split(
        text, [&](std::string_view part) { encode_plain(part, ids); },
        [&](int32_t id) { ids.push_back(id); });
    return ids;
  }

  std::string decode(const TokenIds& ids) const override {
    std::string text;
    for (const auto id : ids) {
      if (id < 0 || id >= vocab_size()) {
        throw DataError(
            fmt::format("[tokenizer] there is no token {}; ids go to {}", id, vocab_size() - 1));
      }
      const auto& token = options_.vocabulary[static_cast<size_t>(id)];
      const bool continues = token.compare(0, options_.prefix.size(), options_.prefix) == 0;
      if (!text.empty() && !continues) text += ' ';
      text += continues && !text.empty() ? token.substr(options_.prefix.size()) : token;
    }
    return text;
  }

  bool may_cut(char before, char after) const override { return added_.may_cut(before, after); }

  std::optional<int32_t> id_of(std::string_view token) const override {
    for (const auto& added : options_.added) {
      if (added.text == token) return added.id;
    }
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(options_.vocabulary.size()); }

 private:
  // `text` is normalised.
  void encode_plain(std::string_view text, TokenIds& ids) const {
    size_t begin = 0;  // of the word
    int64_t characters = 0;
    const auto end_word = [&](size_t end) {
      if (characters > 0) encode_word(text.substr(begin, end - begin), characters, ids);
      characters = 0;
    };
    for (size_t at = 0; at < text.size();) {
      const size_t from = at;
      const int32_t code = unicode::next(text, at);
      const bool space = unicode::is_space(code), alone = !space && unicode::is_punctuation(code);
      if (space || alone) end_word(from);
      if (space) continue;
      if (characters == 0) begin = from;
      ++characters;
      if (alone) end_word(at);
    }
    end_word(text.size());
  }

  std::string normalized(std::string_view text) const {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && !is_simple(text[end])) ++end;
      if (end > at) normalize_any(text.substr(at, end - at), result);
      for (at = end; at < text.size() && is_simple(text[at]); ++at) {
        const char c = text[at];
        result += options_.lowercase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      }
    }
    return result;
  }

  // A character that normalisation changes in case only; no mark is ever moved across it.
  static bool is_simple(char c) { return c >= ' ' && c < 0x7F; }

  void normalize_any(std::string_view text, std::string& result) const {
    std::u32string codes;
    for (size_t at = 0; at < text.size();) {
      int32_t code = unicode::next(text, at);
      if (options_.clean) {
        const bool blank = code == '\t' || code == '\n' || code == '\r';
        if (code == 0 || code == 0xFFFD || (!blank && unicode::is_other(code))) continue;
        if (unicode::is_space(code)) code = ' ';
      }
      const bool apart = options_.set_cjk_apart && unicode::is_cjk(code);
      if (apart) codes += U' ';
      codes += static_cast<char32_t>(code);
      if (apart) codes += U' ';
    }
    if (options_.strip_accents) {
      std::u32string bare;
      for (const char32_t code : unicode::decomposed(codes)) {
        if (!unicode::is_mark(static_cast<int32_t>(code))) bare += code;
      }
      codes = std::move(bare);
    }
    if (options_.lowercase) {
      std::u32string lower;
      for (const char32_t code : codes) unicode::append_lower(lower, static_cast<int32_t>(code));
      codes = std::move(lower);
    }
    for (const char32_t code : codes) unicode::append(result, static_cast<int32_t>(code));
  }

  // Greedy, longest piece first; a word with a part that is no piece is unknown as a whole.
  void encode_word(std::string_view word, int64_t characters, TokenIds& ids) const {
    if (characters > options_.max_characters) {
      ids.push_back(unknown_);
      return;
    }
    const size_t first = ids.size();
    for (size_t begin = 0; begin < word.size();) {
      const Ids& pieces = begin == 0 ? ids_ : inner_;
      size_t end = std::min(word.size(), begin + longest_);
      auto found = pieces.end();
      for (; end > begin; --end) {
        const bool cuts = end < word.size() && (word[end] & '\xC0') == '\x80';
        if (cuts) continue;
        found = pieces.find(word.substr(begin, end - begin));
        if (found != pieces.end()) break;
      }
      if (found == pieces.end()) {
        ids.resize(first);
        ids.push_back(unknown_);
        return;
      }
      ids.push_back(found->second);
      begin = end;
    }
  }

  WordPieceOptions options_;
  AddedTokens added_;
  Ids ids_;
  Ids inner_;  // pieces that continue a word, without the prefix
  size_t longest_ = 0;
  int32_t unknown_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> make_wordpiece(WordPieceOptions options, const std::string& where) {
  return std::make_unique<WordPiece>(std::move(options), where);
}

}  // namespace tanren
