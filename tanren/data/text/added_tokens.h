// Added tokens: special ones ("[MASK]") and those that were added to a vocabulary. They are found
// in a text as they are and split it. Immutable once made. Used by the tokenizers of this folder.
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
  bool strip_left = false;   // includes the white space before it
  bool strip_right = false;  // includes the white space after it
  bool single_word = false;  // matches only if no word character is next to it
  bool normalized = false;   // is normalised, and found in the normalised text
  bool special = false;      // stands for no text: <|endoftext|>
};

class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;

  // Without `normalize`, texts are searched as they are. DataError (beginning with `where`) for a
  // token that `normalize` makes empty.
  AddedTokens(const std::vector<AddedToken>& tokens, Normalize normalize, const std::string& where);

  // Calls plain(part) for the normalised parts of `text` and token(id) for the tokens between them,
  // in order. First the unchanged text is split at the tokens that are not `normalized`; then each
  // part is normalised and split at the `normalized` ones. At one place the longest token wins;
  // among equal ones, the first.
  void split(std::string_view text, const std::function<void(std::string_view)>& plain,
             const std::function<void(int32_t)>& token) const;

  // Whether a text may be cut between these two bytes so that each part can be split alone: the
  // first is printable ASCII, the second ASCII white space, and no token reaches across the cut.
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
