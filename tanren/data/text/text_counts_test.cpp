#include "tanren/data/text/text_counts.h"

#include "tanren/base/file.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tanren {
namespace {

const std::string kTokenizerFiles = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/";

// The words of a text, given as its tokens, that begin in tokens[counted_from] or later.
int64_t words_of(const std::vector<std::string>& tokens, size_t counted_from = 0) {
  WordCounter counter;
  counter.begin_text();
  for (size_t i = 0; i < tokens.size(); ++i) counter.add(tokens[i], i >= counted_from);
  return counter.words();
}

TEST(TextCounts, words_are_what_lies_between_white_space_wherever_tokens_are_cut) {
  // As len(re.split(r"\s+", text)) of Python, without the empty ones at both ends.
  const std::pair<std::string, int64_t> cases[] = {
      {"", 0},
      {" \n\t", 0},
      {"one", 1},
      {"  one two\nthree ", 3},
      {"don't stop", 2},
      {"a\u3000b\u2003c\u00a0d\u0085e", 5},
      {"日本 語", 2},
      {"a\x1c"
       "b\x1f"
       "c",
       3},
      {"a\u200b"
       "b",
       1},  // Python: no white space
      {"\U0001F600 \U0001F600", 2},
      {"a\xE3\x80 b", 2},  // a character that is cut off
      {"a\xE3\x80", 1},
      {"\x80\x80 \xFF", 2},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_EQ(words_of({text}), words) << text;
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(words_of(bytes), words) << text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(words_of({text.substr(0, cut), text.substr(cut)}), words) << text << " " << cut;
    }
  }
}

TEST(TextCounts, a_word_belongs_to_the_token_in_which_it_begins) {
  EXPECT_EQ(words_of({"on", "e two", " thr", "ee"}, 1), 2);
  EXPECT_EQ(words_of({"on", "e two", " thr", "ee"}, 2), 1);
  EXPECT_EQ(words_of({"on", "e two", " thr", "ee"}, 3), 0);
  // A character whose first byte lies in the token before.
  EXPECT_EQ(words_of({"a \xE6", "\x97\xA5"}, 1), 0);
  EXPECT_EQ(words_of({"a \xE6", "\x97\xA5"}, 0), 2);
}

TEST(TextCounts, tell_of_a_character_that_is_not_complete) {
  WordCounter counter;
  counter.add("a\xE3\x80", true);
  EXPECT_TRUE(counter.is_within_character());
  counter.add("\x80", true);
  EXPECT_FALSE(counter.is_within_character());
  counter.add("b", true);
  EXPECT_EQ(counter.words(), 2) << "U+3000 is white space";
  counter.begin_text();
  counter.add("c", true);
  EXPECT_EQ(counter.words(), 3) << "no word goes on in another text";
}

TEST(TextCounts, the_texts_of_a_bpes_tokens_are_the_text_and_special_ones_have_none) {
  const auto tokenizer = load_tokenizer(kTokenizerFiles + "bpe.json");
  ASSERT_TRUE(tokenizer->keeps_every_byte());
  const auto texts = TokenTexts::of(*tokenizer);
  const auto expected = nlohmann::json::parse(read_file(kTokenizerFiles + "expected.json"));
  for (const auto& item : expected["bpe"]) {
    const auto text = item["text"].get<std::string>();
    if (text.find("<|endoftext|>") != std::string::npos) continue;
    std::string joined;
    for (const int32_t id : tokenizer->encode(text)) joined += texts->text(id);
    EXPECT_EQ(joined, text);
  }
  EXPECT_TRUE(texts->is_special(0));
  EXPECT_EQ(texts->text(0), "");
  EXPECT_EQ(texts->text(-1), "");
  EXPECT_EQ(texts->text(1 << 30), "");
  const auto bytes = TokenTexts::of_bytes();
  EXPECT_EQ(bytes->text(0xE3), "\xE3");
  EXPECT_FALSE(bytes->is_special(0));
  EXPECT_EQ(TokenTexts::of(*load_tokenizer(kTokenizerFiles + "uncased.json")), nullptr)
      << "its tokens are in small letters";
}

}  // namespace
}  // namespace tanren
