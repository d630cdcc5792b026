#include "tanren/data/text/added_tokens.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/data/text/tokenize_file.h"

#include <nlohmann/json.hpp>

#include <cstring>

namespace tanren::added_tokens {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

const std::filesystem::path kFixtures = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer";

json fixture(const char* name) { return json::parse(read_file(kFixtures / name)); }

// A vocabulary of the fixtures with more added tokens, or other parts.
std::unique_ptr<Tokenizer> tokenizer_of(const json& item) {
  json file = fixture((item["base"].get<std::string>() + ".json").c_str());
  file["added_tokens"] = item["added"];
  for (const char* part : {"pre_tokenizer", "post_processor"}) {
    if (item.contains(part)) file[part] = item[part];
  }
  const TemporaryFolder folder;
  return load_tokenizer(folder.file("tokenizer.json", file.dump()));
}

json token(const std::string& content, int64_t id) {
  return {{"id", id}, {"content", content}, {"normalized", true}, {"special", false}};
}

std::string refusal(const char* base, const json& added) {
  const auto error = testing::error_of<DataError>([&] {
    tokenizer_of({{"base", base}, {"added", added}});
  });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error;
}

int64_t size_of(const char* base) {
  return static_cast<int64_t>(fixture(base)["model"]["vocab"].size());
}

TEST(AddedTokens, with_an_id_that_hugging_face_would_not_give_are_refused) {
  const int64_t next = size_of("uncased.json");
  TANREN_EXPECT_CONTAINS(refusal("uncased", json::array({token("zork", next + 50)})),
                         "the added token zork has the id " + std::to_string(next + 50) +
                             ", Hugging Face gives it " + std::to_string(next));
  TANREN_EXPECT_CONTAINS(refusal("uncased", json::array({token("the", next)})),
                         "which it has in the vocabulary");
  TANREN_EXPECT_CONTAINS(
      refusal("uncased", json::array({token("zork", next), token("zork", next)})),
      "the added token zork comes twice");
}

TEST(AddedTokens, of_which_normalising_leaves_nothing_are_refused) {
  const int64_t next = size_of("uncased.json");
  TANREN_EXPECT_CONTAINS(refusal("uncased", json::array({token("\xCC\x81", next)})),
                         "nothing is left");
}

// issue 21
TEST(AddedTokens, with_every_flag_give_the_ids_of_hugging_face) {
  size_t texts = 0;
  for (const auto& item : fixture("added.json")) {
    const auto tokenizer = tokenizer_of(item);
    for (const auto& line : item["texts"]) {
      ++texts;
      const auto found = tokenizer->encode(line["text"].get<std::string>());
      EXPECT_EQ(found, line["ids"].get<TokenIds>())
          << item["base"] << " " << item["added"].back() << " in " << line["text"];
      if (found != line["ids"].get<TokenIds>()) break;
    }
  }
  EXPECT_GT(texts, 1000u);
}

// issue 21
TEST(AddedTokens, are_no_pieces_of_words) {
  const int64_t next = size_of("uncased.json");
  json word = token("zork", next);
  word["single_word"] = true;
  const auto tokenizer = tokenizer_of({{"base", "uncased"}, {"added", {word}}});
  EXPECT_EQ(tokenizer->encode("zork"), TokenIds{static_cast<int32_t>(next)});
  EXPECT_EQ(tokenizer->encode("zorks"), TokenIds{*tokenizer->id_of("[UNK]")});
}

// issue 21
TEST(Pairs, are_cut_where_hugging_face_cuts_them) {
  size_t pairs = 0;
  for (const auto& item : fixture("pairs.json")) {
    const auto tokenizer = tokenizer_of(item);
    for (const auto& pair : item["pairs"]) {
      ++pairs;
      std::vector<int32_t> types;
      const auto found =
          tokenizer->encode_pair(pair["a"].get<std::string>(), pair["b"].get<std::string>(),
                                 pair["room"].get<int64_t>(), &types);
      EXPECT_EQ(found, pair["ids"].get<TokenIds>()) << item["base"] << " " << pair;
      EXPECT_EQ(types, pair["types"].get<TokenIds>()) << item["base"] << " " << pair;
      if (found != pair["ids"].get<TokenIds>()) break;
    }
  }
  EXPECT_GT(pairs, 400u);
}

// Regression: each space used to scan all the others.
TEST(AddedTokens, that_take_white_space_and_are_some_are_found_in_a_long_run_of_it) {
  const AddedToken space{.text = " ", .id = 7, .strip_left = true, .strip_right = true};
  const AddedTokens tokens({space}, nullptr, "test");
  const size_t length = size_t{1} << 20;
  size_t count = 0;
  std::string plain;
  tokens.split(
      "a" + std::string(length, ' ') + "\t\nb ", [&](std::string_view part) { plain += part; },
      [&](int32_t id) { count += id == 7 ? 1 : 0; });
  EXPECT_EQ(count, length + 1);
  EXPECT_EQ(plain, "ab");
}

TEST(Templates, of_more_tokens_than_anybody_puts_around_a_text_are_refused) {
  const json part{{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}};
  json single = json::array();
  for (int i = 0; i < 64; ++i) single.push_back(part);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  const auto error_with = [&](size_t ids) {
    const json known{{"[CLS]", {{"id", "[CLS]"}, {"ids", std::vector<int>(ids, 1)}}}};
    const json post{{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", known}};
    const json added = fixture("uncased.json")["added_tokens"];
    return testing::error_of<DataError>([&] {
      tokenizer_of({{"base", "uncased"}, {"added", added}, {"post_processor", post}});
    });
  };
  TANREN_EXPECT_CONTAINS(error_with(17), "has more than 1024 special tokens");
}

class OlderFiles : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load(const json& item) {
    const TemporaryFolder folder;
    for (const auto& name : item["usual"]) {
      const auto file = name.get<std::string>();
      folder.file(file, read_file(kFixtures / file));
    }
    for (const auto& [name, text] : item["files"].items()) {
      folder.file(name, text.get<std::string>());
    }
    return load_tokenizer(folder.path());
  }
  std::string error(const char* usual, const std::string& name, const json& content) {
    const json item{{"usual", {usual}}, {"files", {{name, content.dump()}}}};
    return testing::error_of<DataError>([&] { load(item); });
  }
};

TEST_F(OlderFiles, of_another_class_or_with_other_ids_are_refused) {
  TANREN_EXPECT_CONTAINS(
      error("vocab.txt", "tokenizer_config.json", {{"tokenizer_class", "BertJapaneseTokenizer"}}),
      "its class BertJapaneseTokenizer");
  TANREN_EXPECT_CONTAINS(error("vocab.txt", "added_tokens.json", {{"zork", 9999}}),
                         "the added token zork has the id 9999");
  TANREN_EXPECT_CONTAINS(error("vocab.txt", "added_tokens.json", {{"zork", "x"}}), "no usable id");
}

// issue 21
TEST_F(OlderFiles, and_what_stands_beside_them_give_the_ids_of_transformers) {
  for (const auto& item : fixture("older.json")) {
    const auto tokenizer = load(item);
    EXPECT_EQ(tokenizer->vocab_size(), item["size"].get<int64_t>()) << item["files"];
    for (const auto& line : item["texts"]) {
      EXPECT_EQ(tokenizer->encode(line["text"].get<std::string>()), line["ids"].get<TokenIds>())
          << item["files"] << line["text"];
    }
    for (const auto& line : item["framed"]) {
      EXPECT_EQ(tokenizer->encode_framed(line["text"].get<std::string>()),
                line["ids"].get<TokenIds>())
          << item["files"] << line["text"];
    }
  }
}

// issue 21
TEST(TokenizeFile, in_chunks_gives_the_ids_of_the_whole_whatever_tokens_were_added) {
  const TemporaryFolder folder;
  const json prefix{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "the<t>  blade\nforge <t>\nruns\fon\v the run<t>\n\n a b\ta\tb\n x<t>";
  }
  const auto file = folder.file("text", text);
  for (const char* base : {"uncased", "bpe"}) {
    const int64_t next = size_of((std::string(base) + ".json").c_str());
    for (const char* content : {"<t>", "a b", " x", "n "}) {
      json added = fixture((std::string(base) + ".json").c_str())["added_tokens"];
      json more = token(content, next);
      more["rstrip"] = true;
      more["single_word"] = content[0] == ' ';
      added.push_back(more);
      json item{{"base", base}, {"added", added}};
      if (base == std::string("bpe")) item["pre_tokenizer"] = prefix;
      const auto tokenizer = tokenizer_of(item);
      const TokenIds whole = tokenizer->encode(text);
      for (const int64_t chunk : {1, 5, 17, 100}) {
        tokenize_file(file, folder.path() / "out", *tokenizer, 1, chunk);
        const std::string bytes = read_file(folder.path() / "out");
        std::vector<uint16_t> ids(bytes.size() / 2);
        std::memcpy(ids.data(), bytes.data(), bytes.size());
        EXPECT_TRUE(TokenIds(ids.begin(), ids.end()) == whole)
            << base << " \"" << content << "\", chunks of " << chunk;
      }
    }
  }
}

// issue 21
TEST(TokenizeFile, that_cannot_be_read_to_its_end_is_an_error_and_leaves_no_file) {
  const TemporaryFolder folder;
  const auto tokenizer = load_tokenizer(kFixtures / "bpe.json");
  // Its first page is never mapped: reading it is an input/output error.
  const auto error = testing::error_of<InputError>(
      [&] { tokenize_file("/proc/self/mem", folder.path() / "out", *tokenizer, 1); });
  TANREN_EXPECT_CONTAINS(error, "cannot read /proc/self/mem to its end");
  EXPECT_EQ(folder.num_entries(), 0u);
}

}  // namespace
}  // namespace tanren::added_tokens
