#include "tanren/data/text/tokenizer.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/data/text/byte_bpe.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tanren {
namespace {

using testing::TemporaryFolder;

const std::filesystem::path kFixtures = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer";

nlohmann::json expected(const std::string& name) {
  return nlohmann::json::parse(read_file(kFixtures / "expected.json"))[name];
}

std::string load_error(const std::string& text, const std::string& name = "tokenizer.json") {
  const TemporaryFolder folder;
  const auto path = folder.file(name, text);
  auto error = testing::error_of<InputError>([&] { load_tokenizer(path); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  TANREN_EXPECT_CONTAINS(error, name);
  return error;
}

TEST(Tokenizer, files_that_lack_a_field_or_have_another_kind_are_refused_in_one_line) {
  load_error("");
  load_error("[1, 2]");
  TANREN_EXPECT_CONTAINS(load_error("{}"), "has no model");
  TANREN_EXPECT_CONTAINS(load_error(R"({"model": {"type": "Unigram"}})"),
                         "\"Unigram\" is not read");
  TANREN_EXPECT_CONTAINS(load_error(R"({"model": {"type": "WordPiece"}})"), "no vocabulary");
  TANREN_EXPECT_CONTAINS(load_error(R"({"model": {"type": "BPE", "vocab": {"a": 0}}})"),
                         "another kind than GPT-2's");
  TANREN_EXPECT_CONTAINS(
      load_error(R"({"model": {"type": "WordPiece", "vocab": {"a": 99999999999}}})"), "usable id");
  TANREN_EXPECT_CONTAINS(load_error("a\nb\n", "vocab.txt"), "lacks [UNK]");
  const TemporaryFolder empty;
  const auto vocabulary = empty.file("vocab.json", R"({"a": 0})");
  TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] { load_tokenizer(vocabulary); }),
                         "merges.txt");
  std::filesystem::remove(vocabulary);
  testing::error_of<DataError>([&] { load_tokenizer(empty.path()); });
  testing::error_of<InputError>([&] { load_tokenizer(empty.path() / "absent.json"); });
}

TEST(Tokenizer, ids_equal_those_of_hugging_face_on_hard_cases) {
  for (const char* name : {"uncased", "cased", "bpe"}) {
    const auto tokenizer = load_tokenizer(kFixtures / (std::string(name) + ".json"));
    for (const auto& item : expected(name)) {
      const auto text = item["text"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), item["ids"].get<TokenIds>())
          << name << ": " << item["text"];
      EXPECT_EQ(tokenizer->encode_framed(text), item["special"].get<TokenIds>())
          << name << ": " << item["text"];
    }
  }
}

TEST(Tokenizer, the_older_files_of_a_vocabulary_give_the_same_ids) {
  const auto words = load_tokenizer(kFixtures / "vocab.txt");
  for (const auto& item : expected("uncased")) {
    EXPECT_EQ(words->encode(item["text"].get<std::string>()), item["ids"].get<TokenIds>())
        << item["text"];
  }
  const auto bytes = load_tokenizer(kFixtures / "vocab.json");
  for (const auto& item : expected("bpe")) {
    EXPECT_EQ(bytes->encode(item["text"].get<std::string>()), item["ids"].get<TokenIds>())
        << item["text"];
  }
}

TEST(Tokenizer, byte_level_text_comes_back_byte_for_byte) {
  const auto tokenizer = load_tokenizer(kFixtures / "bpe.json");
  for (const auto& item : expected("bpe")) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  const std::string no_utf8 = "\xff\xfe broken \xe2\x82 bytes \x80";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(no_utf8)), no_utf8);
  EXPECT_THROW(tokenizer->decode({-1}), DataError);
  EXPECT_THROW(tokenizer->decode({1 << 20}), DataError);
}

TEST(Tokenizer, pieces_of_words_join_again) {
  const auto tokenizer = load_tokenizer(kFixtures / "cased.json");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("The blade remembers")), "The blade remembers");
}

TEST(Tokenizer, long_words_merge_as_short_ones_do) {
  const auto tokenizer = load_tokenizer(kFixtures / "bpe.json");
  // 48 bytes is where the algorithm changes.
  std::string word;
  for (int i = 0; i < 60; ++i) {
    word += static_cast<char>('a' + i * 7 % 26);
    const TokenIds ids = tokenizer->encode(word);
    EXPECT_EQ(tokenizer->decode(ids), word);
  }
  const std::string the(300'000, 'e');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(the)), the);
}

TEST(Tokenizer, a_frame_is_kept_when_the_text_is_cut) {
  const auto tokenizer = load_tokenizer(kFixtures / "uncased.json");
  const auto cls = *tokenizer->id_of("[CLS]"), sep = *tokenizer->id_of("[SEP]");
  const TokenIds ids = tokenizer->encode_framed("the forge trains the blade", 4);
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(ids.front(), cls);
  EXPECT_EQ(ids.back(), sep);
  std::vector<int32_t> types;
  const TokenIds pair =
      tokenizer->encode_pair("the forge", "the blade remembers each blow", 8, &types);
  EXPECT_EQ(pair.size(), 8u);
  EXPECT_EQ(std::count(pair.begin(), pair.end(), sep), 2);
  EXPECT_EQ(types.front(), 0);
  EXPECT_EQ(types.back(), 1);
  EXPECT_EQ(types.size(), pair.size());
}

TEST(EndOfWord, white_space_leaves_its_last_character_to_the_word) {
  const std::string text = "a  b\n\nc \t";
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_word(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  EXPECT_EQ(words, (std::vector<std::string>{"a", " ", " b", "\n", "\n", "c", " \t"}));
}

}  // namespace
}  // namespace tanren
