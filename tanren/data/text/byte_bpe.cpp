#include "tanren/data/text/byte_bpe.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/text/unicode.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <set>
#include <unordered_map>

namespace tanren {

namespace {

enum class Class { letter, number, space, other };

Class class_of(int32_t code) {
  if (unicode::is_letter(code)) return Class::letter;
  if (unicode::is_number(code)) return Class::number;
  return unicode::is_space(code) ? Class::space : Class::other;
}

size_t end_of_run(std::string_view text, size_t at, Class wanted) {
  while (at < text.size()) {
    size_t after = at;
    if (class_of(unicode::next(text, after)) != wanted) break;
    at = after;
  }
  return at;
}

// Printable stand-ins of the 256 bytes: themselves where they print, else U+0100 and up.
std::array<std::string, 256> spelling() {
  std::array<std::string, 256> names;
  int32_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                        (byte >= 0xAE && byte <= 0xFF);
    unicode::append(names[static_cast<size_t>(byte)], prints ? byte : next++);
  }
  return names;
}

uint64_t key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

class ByteBpe : public Tokenizer {
 public:
  ByteBpe(const ByteBpeOptions& options, const std::string& where)
      : added_(options.added, nullptr, where), add_prefix_space_(options.add_prefix_space) {
    frame_ = options.frame;
    const auto names = spelling();
    std::unordered_map<std::string, unsigned char> bytes;
    for (size_t byte = 0; byte < names.size(); ++byte) {
      bytes[names[byte]] = static_cast<unsigned char>(byte);
    }
    for (size_t id = 0; id < options.vocabulary.size(); ++id) {
      const auto& token = options.vocabulary[id];
      if (!token.empty()) ids_.emplace(token, static_cast<int32_t>(id));
      text_.push_back(bytes_of(token, bytes));
    }
    for (size_t byte = 0; byte < names.size(); ++byte) {
      byte_ids_[byte] = required(names[byte], where);
    }
    for (size_t rank = 0; rank < options.merges.size(); ++rank) {
      const auto& [left, right] = options.merges[rank];
      merges_.insert_or_assign(key(required(left, where), required(right, where)),
                               Merge{static_cast<int32_t>(rank), required(left + right, where)});
    }
    // Added tokens join the vocabulary last, so that no word is encoded as one of them.
    for (const auto& token : options.added) {
      text_.resize(std::max(text_.size(), static_cast<size_t>(token.id) + 1));
      text_[static_cast<size_t>(token.id)] = token.text;
      ids_[token.text] = token.id;
      if (token.special) special_.insert(token.id);
    }
  }

  TokenIds encode(std::string_view text) const override {
    TokenIds ids;
    std::unordered_map<std::string_view, std::pair<size_t, size_t>> known;  // word → where in ids
    std::string with_space;
    added_.split(
        text,
        [&](std::string_view part) {
          if (add_prefix_space_ && part.front() != ' ') {
            with_space = " " + std::string(part);
            encode_plain(with_space, ids, nullptr);
          } else {
            encode_plain(part, ids, &known);
          }
        },
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
      text += text_[static_cast<size_t>(id)];
    }
    return text;
  }

  // With add_prefix_space, a part that does not begin with a space gets one. So a text may be cut
  // only before a space.
  bool may_cut(char before, char after) const override {
    return added_.may_cut(before, after) && (!add_prefix_space_ || after == ' ');
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(text_.size()); }
  bool keeps_every_byte() const override { return !add_prefix_space_; }
  bool is_special(int32_t id) const override { return special_.count(id) > 0; }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t result = 0;
  };
  using Known = std::unordered_map<std::string_view, std::pair<size_t, size_t>>;

  int32_t required(const std::string& token, const std::string& where) const {
    const auto found = ids_.find(token);
    if (found != ids_.end()) return found->second;
    throw DataError(where + ": the vocabulary lacks " + one_line(token) +
                    "; take the files of one tokenizer");
  }

  static std::string bytes_of(const std::string& token,
                              const std::unordered_map<std::string, unsigned char>& bytes) {
    std::string result;
    for (size_t at = 0; at < token.size();) {
      const size_t begin = at;
      unicode::next(token, at);
      const auto found = bytes.find(token.substr(begin, at - begin));
      if (found == bytes.end()) return token;  // an added token, spelt as text
      result += static_cast<char>(found->second);
    }
    return result;
  }

  void encode_plain(std::string_view text, TokenIds& ids, Known* known) const {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = end_of_word(text, begin);
      const auto word = text.substr(begin, end - begin);
      begin = end;
      if (known != nullptr) {
        const auto found = known->find(word);
        if (found != known->end()) {
          for (size_t i = 0; i < found->second.second; ++i)
            ids.push_back(ids[found->second.first + i]);
          continue;
        }
      }
      const size_t first = ids.size();
      encode_word(word, ids);
      if (known != nullptr && word.size() > 1)
        known->emplace(word, std::pair(first, ids.size() - first));
    }
  }

  const Merge* merge_of(int32_t left, int32_t right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

  void encode_word(std::string_view word, TokenIds& ids) const {
    constexpr size_t kShort = 48;
    if (word.size() > kShort) return encode_long(word, ids);
    std::array<int32_t, kShort> symbols;
    size_t count = 0;
    for (const char byte : word) symbols[count++] = byte_ids_[static_cast<unsigned char>(byte)];
    while (count > 1) {
      const Merge* best = nullptr;
      size_t place = 0;
      for (size_t i = 0; i + 1 < count; ++i) {
        const Merge* merge = merge_of(symbols[i], symbols[i + 1]);
        if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
          best = merge;
          place = i;
        }
      }
      if (best == nullptr) break;
      symbols[place] = best->result;
      --count;
      for (size_t i = place + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    }
    ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
  }

  // The same in O(n log n) time, because a word may have a megabyte.
  void encode_long(std::string_view word, TokenIds& ids) const {
    struct Symbol {
      int32_t id;
      int64_t before, after;
    };
    struct Candidate {
      int32_t rank;
      int64_t place;
      int32_t left, right;
      bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : place > other.place;
      }
    };
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    const auto size = static_cast<int64_t>(word.size());
    for (int64_t i = 0; i < size; ++i) {
      symbols.push_back({byte_ids_[static_cast<unsigned char>(word[static_cast<size_t>(i)])], i - 1,
                         i + 1 < size ? i + 1 : -1});
    }
    std::priority_queue<Candidate> queue;
    const auto consider = [&](int64_t place) {
      if (place < 0 || symbols[static_cast<size_t>(place)].after < 0) return;
      const auto& left = symbols[static_cast<size_t>(place)];
      const auto& right = symbols[static_cast<size_t>(left.after)];
      if (const Merge* merge = merge_of(left.id, right.id)) {
        queue.push({merge->rank, place, left.id, right.id});
      }
    };
    for (int64_t i = 0; i + 1 < size; ++i) consider(i);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      auto& left = symbols[static_cast<size_t>(best.place)];
      if (left.id != best.left || left.after < 0) continue;
      auto& right = symbols[static_cast<size_t>(left.after)];
      if (right.id != best.right) continue;
      left.id = merge_of(best.left, best.right)->result;
      right.id = -1;
      left.after = right.after;
      if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = best.place;
      consider(left.before);
      consider(best.place);
    }
    for (int64_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].after) {
      ids.push_back(symbols[static_cast<size_t>(i)].id);
    }
  }

  AddedTokens added_;
  bool add_prefix_space_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::string> text_;  // bytes of each token
  std::set<int32_t> special_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace

size_t end_of_word(std::string_view text, size_t begin) {
  size_t at = begin;
  const int32_t first = unicode::next(text, at);
  if (first == '\'') {
    for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      if (text.substr(at, ending.size()) == ending) return at + ending.size();
    }
  }
  const Class kind = class_of(first);
  if (kind != Class::space) return end_of_run(text, at, kind);
  if (first == ' ' && at < text.size()) {
    size_t after = at;
    const Class next = class_of(unicode::next(text, after));
    if (next != Class::space) return end_of_run(text, at, next);
  }
  // The last character of white space before a word belongs to the word.
  size_t last = begin, end = at;
  while (end < text.size()) {
    size_t after = end;
    if (class_of(unicode::next(text, after)) != Class::space) return last > begin ? last : end;
    last = end;
    end = after;
  }
  return end;
}

std::unique_ptr<Tokenizer> make_byte_bpe(const ByteBpeOptions& options, const std::string& where) {
  return std::make_unique<ByteBpe>(options, where);
}

}  // namespace tanren
