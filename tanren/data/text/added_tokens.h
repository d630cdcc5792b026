// Tokens that stand in a text as they are and split it: special ones ("[MASK]") and those that were
// added to a vocabulary. Immutable once made. Used by the tokenizers of this room.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool strip_left = false;   // takes the white space before it with it
  bool strip_right = false;  // and after it
  bool single_word = false;  // counts only where no word character stands next to it
  bool normalized = false;   // is looked for in the normalised text, and normalised itself
};

class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;

  // Without `normalize` a text is looked through as it stands. DataError (beginning with `where`) for
  // a token of which `normalize` leaves nothing.
  AddedTokens(const std::vector<AddedToken>& tokens, Normalize normalize, const std::string& where);

  // Calls plain(part) for normalised parts of `text` and token(id) between them, in order. The tokens
  // of the text as it stands come first; then each part between them is normalised and split again. At
  // one place the longest token wins, and of equal ones the first.
  void split(std::string_view text, const std::function<void(std::string_view)>& plain,
             const std::function<void(int32_t)>& token) const;

  // Whether a text may be cut between these two bytes, and each part be split by itself: the first is
  // printable ASCII, the second white space of ASCII, and no token reaches across.
  bool may_cut(char before, char after) const;

 private:
  // Tokens by their first byte, the longest first.
  struct Matcher {
    std::vector<AddedToken> tokens;
    std::array<std::vector<uint32_t>, 256> by_byte;

    void add(AddedToken token);
    void sort();
    const AddedToken* at(std::string_view text, size_t place) const;
    template <typename Plain, typename Token>
    void split(std::string_view text, Plain&& plain, Token&& token) const;
  };

  void forbid_cuts(const AddedToken& token);

  Matcher raw_, normalized_;
  Normalize normalize_;
  std::bitset<256> reaching_;  // bytes after which a token may reach across white space
};

}  // namespace tanren
