// text and tokens with a tokenizer: windows, vocabulary, documents, and the counts of their text.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/token_test_util.h"
#include "tanren/data/text/tokenize_file.h"

#include <filesystem>
#include <regex>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::counted;
using testing::error_of;
using testing::Ids;
using testing::rows_of;
using testing::TemporaryFolder;
using testing::whole_of;
using testing::windows_of;

const std::string kBpe = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json";
const std::string kWordPiece = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/uncased.json";
constexpr int64_t kNumTokens = 600;

const std::string kFirst =
    "the forge trains the blade,\nand  remembers each blow \u3000 日本語 end";
const std::string kSecond = "Don't stop: it is\tthe second text of 2 \u2003and the last";

class TextTokens : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(at("texts"));
    folder_.file("texts/a.txt", kFirst);
    folder_.file("texts/b.txt", kSecond);
    folder_.file("texts/c.txt", "");
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }

  SourceOptions text(const std::string& name = "texts", int64_t context = 6) const {
    return {.kind = "text", .path = at(name).string(), .context = context, .tokenizer = kBpe};
  }
  SourceOptions tokens(const std::string& tokenizer = kBpe) const {
    const auto path = at("ids.bin");
    tokenize_file(at("texts/a.txt"), path, *load_tokenizer(tokenizer), 1);
    return {.kind = "tokens", .path = path.string(), .context = 6, .tokenizer = tokenizer};
  }
  static Ids ids_of_text(const std::string& text) {
    const TokenIds ids = load_tokenizer(kBpe)->encode(text);
    return {ids.begin(), ids.end()};
  }
  static std::unique_ptr<Dataset> open(const SourceOptions& options,
                                       const DataInfo* train = nullptr) {
    return open_dataset(options, train == nullptr ? "data.train" : "data.eval", train);
  }

  TemporaryFolder folder_;
};

TEST_F(TextTokens, refuse_a_small_vocabulary_an_unknown_end_and_what_is_no_text) {
  auto small = tokens();
  small.vocab_size = kNumTokens - 1;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { open(small); }),
                         "vocab_size 599 is smaller than the tokenizer's 600 tokens");
  auto ends = text();
  ends.document_end_token = "</s>";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { open(ends); }),
                         "the tokenizer has no token \"</s>\"");
  ends.document_end_token.clear();
  ends.document_end = kNumTokens;
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { open(ends); }),
                         "document_end is 600, and the tokens are 0 to 599");
  folder_.file("bad.txt", "fine\nnot \xFF fine, but long enough");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { open(text("bad.txt")); }), "bad.txt:2: byte 5 ");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { open(text("bad.txt")); }), "[data.train]");
  auto absent = text();
  absent.tokenizer = at("none.json").string();
  EXPECT_THROW(open(absent), InputError);
  folder_.file("short.txt", "a");
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { open(text("short.txt")); }),
                         "there is 1 token, too few for one window");
}

TEST_F(TextTokens, of_a_folder_are_the_ids_of_each_file_and_no_target_crosses_files) {
  const std::vector<Ids> documents = {ids_of_text(kFirst), ids_of_text(kSecond)};
  const auto tokenizer = load_tokenizer(kBpe);
  for (const int64_t stride : {1, 4, 6}) {
    auto options = text();
    options.stride = stride;
    const auto dataset = open(options);
    EXPECT_EQ(rows_of(whole_of(*dataset)), windows_of(documents, 6, stride, false));
    EXPECT_EQ(rows_of(whole_of(*dataset, true)), windows_of(documents, 6, stride, true));
  }
  const DataInfo info = open(text())->info();
  EXPECT_EQ(info.vocab_size, kNumTokens);
  EXPECT_EQ(info.outputs, kNumTokens);
  ASSERT_NE(info.tokenizer, nullptr);
  EXPECT_EQ(info.tokenizer->at("tokenizer.json"), read_file(kBpe));
  const DataInfo alone = token_info(text(), "data.train");
  EXPECT_EQ(alone.vocab_size, kNumTokens);
  EXPECT_EQ(alone.input_shape, info.input_shape);
  EXPECT_EQ(*alone.tokenizer, *info.tokenizer);
}

TEST_F(TextTokens, parts_of_one_file_share_no_token) {
  const auto ids = static_cast<int64_t>(ids_of_text(kFirst).size());
  auto low = text("texts/a.txt", 3), high = low;
  low.part = {0, 0.5};
  high.part = {0.5, 1};
  const double both =
      counted(rows_of(whole_of(*open(low)))) + counted(rows_of(whole_of(*open(high))));
  EXPECT_EQ(static_cast<int64_t>(both), ids - 2);
}

TEST_F(TextTokens, evaluation_takes_the_tokenizer_and_vocabulary_of_training) {
  auto padded = text();
  padded.vocab_size = 640;
  const DataInfo train = open(padded)->info();
  EXPECT_EQ(train.vocab_size, 640);
  auto eval = text();
  eval.tokenizer.clear();
  const auto dataset = open(eval, &train);
  EXPECT_EQ(dataset->info().vocab_size, 640);
  EXPECT_EQ(rows_of(whole_of(*dataset)), rows_of(whole_of(*open(padded))));
  auto ids = tokens();
  ids.tokenizer.clear();
  EXPECT_EQ(open(ids, &train)->info().vocab_size, 640);
  const DataInfo bytes = open({.kind = "text", .path = at("texts").string(), .context = 6})->info();
  EXPECT_EQ(bytes.vocab_size, 256);
  EXPECT_EQ(bytes.tokenizer, nullptr);
  EXPECT_EQ(open(eval, &bytes)->info().vocab_size, 256) << "bytes, as in training";
}

TEST_F(TextTokens, of_a_file_of_ids_are_those_ids_with_the_tokenizer) {
  const auto dataset = open(tokens());
  EXPECT_EQ(rows_of(whole_of(*dataset)), windows_of({ids_of_text(kFirst)}, 6, 6, false));
  EXPECT_EQ(dataset->info().vocab_size, kNumTokens);
  EXPECT_NE(dataset->info().tokenizer, nullptr);
}

TEST_F(TextTokens, a_document_ends_with_the_token_that_is_named) {
  folder_.file("two.txt", "the blade<|endoftext|>the forge and the blow");
  auto options = text("two.txt", 4);
  options.document_end_token = "<|endoftext|>";
  const Ids ids = ids_of_text("the blade<|endoftext|>the forge and the blow");
  EXPECT_EQ(rows_of(whole_of(*open(options))), windows_of({ids}, 4, 4, false, 0));
  EXPECT_NE(windows_of({ids}, 4, 4, false, 0), windows_of({ids}, 4, 4, false));
}

// The counts of the whole dataset, in batches of `batch` windows.
Counts counts_of(const Dataset& dataset, int64_t batch) {
  Counts all;
  for (int64_t begin = 0; begin < dataset.size(); begin += batch) {
    std::vector<int64_t> indices;
    for (int64_t i = begin; i < std::min(begin + batch, dataset.size()); ++i) indices.push_back(i);
    for (const auto& [name, count] : dataset.collate(indices).counts) all[name] += count;
  }
  return all;
}

int64_t words_in(const std::string& ascii) {
  static const std::regex word("[^ \\n\\t]+");
  return std::distance(std::sregex_iterator(ascii.begin(), ascii.end(), word), {});
}

TEST_F(TextTokens, bytes_and_words_of_targets_count_once_at_any_stride_and_context) {
  const auto tokenizer = load_tokenizer(kBpe);
  const auto size_of_first = [&](const std::string& text) {  // which is no target
    return tokenizer->decode({tokenizer->encode(text).front()}).size();
  };
  const auto bytes = static_cast<double>(kFirst.size() - size_of_first(kFirst) + kSecond.size() -
                                         size_of_first(kSecond));
  // The first word of each text begins in its first token, which is not a target. U+3000 and U+2003
  // in the texts are white space, as in Python.
  const double words = 11 - 1 + 12 - 1;
  for (const int64_t context : {1, 2, 3, 7, 16}) {
    for (const int64_t stride : {int64_t{1}, (context + 1) / 2, context}) {
      auto options = text("texts", context);
      options.stride = stride;
      const auto dataset = open(options);
      for (const int64_t batch : {1, 3, 1000}) {
        const Counts counts = counts_of(*dataset, batch);
        EXPECT_EQ(counts.at("bytes"), bytes) << context << " " << stride << " " << batch;
        EXPECT_EQ(counts.at("words"), words) << context << " " << stride << " " << batch;
      }
    }
  }
  EXPECT_EQ(open(text())->collate_training({0}, {}).counts.count("bytes"), 0u)
      << "training's do not";
}

TEST_F(TextTokens, bytes_and_words_are_known_of_ids_and_of_bytes_but_not_of_small_letters) {
  const std::string plain = "one two  three\nfour and five";
  folder_.file("texts/a.txt", plain);
  const auto ids = open(tokens());
  const auto tokenizer = load_tokenizer(kBpe);
  const std::string first = tokenizer->decode({tokenizer->encode(plain).front()});
  const Counts counts = counts_of(*ids, 2);
  EXPECT_EQ(counts.at("bytes"), static_cast<double>(plain.size() - first.size()));
  EXPECT_EQ(counts.at("words"), static_cast<double>(words_in(plain) - 1));
  const auto bytes =
      open({.kind = "text", .path = at("texts/a.txt").string(), .context = 5, .stride = 2});
  EXPECT_EQ(counts_of(*bytes, 3).at("bytes"), counts_of(*bytes, 3).at("tokens"));
  EXPECT_EQ(counts_of(*bytes, 3).at("words"), static_cast<double>(words_in(plain) - 1));
  EXPECT_EQ(counts_of(*open(tokens(kWordPiece)), 2).count("bytes"), 0u);
  auto unknown = tokens();
  unknown.tokenizer.clear();
  unknown.vocab_size = kNumTokens;
  EXPECT_EQ(counts_of(*open(unknown), 2).count("words"), 0u);
}

TEST_F(TextTokens, the_token_that_ends_a_document_is_no_text_and_ends_a_word) {
  const std::string text_with_end = "the blade<|endoftext|>forge and blow";
  folder_.file("two.txt", text_with_end);
  for (const bool is_named : {false, true}) {
    auto options = text("two.txt", 4);
    if (is_named) options.document_end_token = "<|endoftext|>";
    const Counts counts = counts_of(*open(options), 2);
    const auto tokenizer = load_tokenizer(kBpe);
    // "the" is not a target. If the token that ends a document is named, the token after it is not
    // a target either.
    const std::string first = tokenizer->decode({tokenizer->encode("the blade").front()});
    const std::string second = tokenizer->decode({tokenizer->encode("forge and blow").front()});
    const auto all = std::string("the bladeforge and blow").size() - first.size();
    EXPECT_EQ(counts.at("bytes"), static_cast<double>(is_named ? all - second.size() : all));
    EXPECT_EQ(counts.at("words"), is_named ? 3.0 : 4.0);
  }
}

}  // namespace
}  // namespace tanren
