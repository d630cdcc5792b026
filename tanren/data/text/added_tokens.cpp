#include "tanren/data/text/added_tokens.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/data/text/unicode.h"

#include <algorithm>

namespace tanren {

namespace {

size_t index_of(char byte) { return static_cast<unsigned char>(byte); }

// Bytes that stay white space, or become a space, under every normalisation here; \v and \f do not.
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = unicode::last(text);
  return unicode::is_word(unicode::next(text, at));
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && unicode::is_word(unicode::next(text, at));
}

// How many bytes of white space `text` begins and ends with.
size_t leading_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!unicode::is_space(unicode::next(text, at))) break;
  }
  return end;
}
size_t trailing_space(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    const size_t last = unicode::last(text.substr(0, begin));
    size_t at = last;
    if (!unicode::is_space(unicode::next(text, at))) break;
    begin = last;
  }
  return text.size() - begin;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, Normalize normalize,
                         const std::string& where)
    : normalize_(std::move(normalize)) {
  for (AddedToken token : tokens) {
    Matcher& matcher = token.normalized ? normalized_ : raw_;
    if (token.normalized && normalize_) {
      const std::string as_given = token.text;
      token.text = normalize_(as_given);
      if (token.text.empty()) {
        throw DataError(where + ": nothing is left of the added token " + one_line(as_given) +
                        " when it is normalised; give it \"normalized\": false");
      }
    }
    forbid_cuts(token);
    matcher.add(std::move(token));
  }
  raw_.sort();
  normalized_.sort();
}

void AddedTokens::Matcher::add(AddedToken token) {
  by_byte[index_of(token.text.front())].push_back(static_cast<uint32_t>(tokens.size()));
  tokens.push_back(std::move(token));
}

void AddedTokens::Matcher::sort() {
  for (auto& list : by_byte) {
    std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
      return tokens[a].text.size() > tokens[b].text.size();
    });
  }
}

const AddedToken* AddedTokens::Matcher::at(std::string_view text, size_t place) const {
  for (const uint32_t index : by_byte[index_of(text[place])]) {
    const AddedToken& token = tokens[index];
    if (text.compare(place, token.text.size(), token.text) == 0) return &token;
  }
  return nullptr;
}

template <typename Plain, typename Token>
void AddedTokens::Matcher::split(std::string_view text, Plain&& plain, Token&& token) const {
  size_t begin = 0;      // of the text that was not passed on yet
  size_t space_end = 0;  // of the white space that the last match included
  for (size_t place = 0; !tokens.empty() && place < text.size();) {
    const AddedToken* found = at(text, place);
    if (found == nullptr) {
      ++place;
      continue;
    }
    size_t from = place, to = place + found->text.size();
    place = to;  // continue after a match, also after one that does not count
    if (found->single_word &&
        (ends_with_word(text.substr(0, from)) || starts_with_word(text.substr(to)))) {
      continue;
    }
    // No white space is scanned twice: a long run of it may hold many tokens of white space.
    if (found->strip_left) {
      from = from < begin ? begin : from - trailing_space(text.substr(begin, from - begin));
    }
    if (found->strip_right) {
      to = space_end = to < space_end ? space_end : to + leading_space(text.substr(to));
    }
    if (begin < from) plain(text.substr(begin, from - begin));
    token(found->id);
    begin = to;
  }
  if (begin < text.size()) plain(text.substr(begin));
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& plain,
                        const std::function<void(int32_t)>& token) const {
  raw_.split(
      text,
      [&](std::string_view part) {
        if (normalize_) {
          normalized_.split(normalize_(part), plain, token);
        } else {
          normalized_.split(part, plain, token);
        }
      },
      token);
}

void AddedTokens::forbid_cuts(const AddedToken& token) {
  const std::string& text = token.text;
  for (size_t i = 1; i < text.size(); ++i) {
    if (is_blank(text[i])) reaching_.set(index_of(text[i - 1]));
  }
  if (token.strip_right) reaching_.set(index_of(text.back()));
  // A single_word token also checks the character before it.
  if (!token.single_word || !is_blank(text.front())) return;
  for (int32_t byte = 0; byte < 0x80; ++byte) {
    if (unicode::is_word(byte)) reaching_.set(static_cast<size_t>(byte));
  }
}

bool AddedTokens::may_cut(char before, char after) const {
  return before > ' ' && before < 0x7F && is_blank(after) && !reaching_[index_of(before)] &&
         !reaching_[index_of(lower(before))];
}

}  // namespace tanren
