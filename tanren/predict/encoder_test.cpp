#include "tanren/predict/encoder.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/predict/batches.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <random>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

const std::string kWords = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt";

std::vector<int64_t> all_of(size_t count) {
  std::vector<int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Every field but the labels, which are placeholders.
void expect_same_inputs(const Batch& made, const Batch& expected) {
  for (const auto& [name, field] : expected.fields) {
    if (name == "labels") continue;
    EXPECT_TRUE(at::equal(made[name], field)) << name;
  }
  EXPECT_TRUE(at::equal(made.ids, expected.ids));
  EXPECT_EQ(made.fields.size(), expected.fields.size());
}

TEST(BatchesByLength, have_every_place_once_and_like_lengths_together) {
  using Batches = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(batches_by_length({5, 1, 5, 2, 1}, 2), (Batches{{1, 4}, {3}, {0, 2}}));
  EXPECT_EQ(batches_by_length({0, 0, 0}, 2), (Batches{{0, 1}, {2}}));
  EXPECT_TRUE(batches_by_length({}, 4).empty());
  // A long text does not make the others padded, and a little padding does not make another batch.
  EXPECT_EQ(batches_by_length({500, 10, 12, 11}, 4), (Batches{{1, 3, 2}, {0}}));
}

// The least cost by trying every last batch of every beginning.
std::vector<std::vector<int64_t>> by_trying_all(const std::vector<int64_t>& lengths, int64_t size) {
  std::vector<int64_t> order = all_of(lengths.size());
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] < lengths[static_cast<size_t>(b)];
  });
  const auto count = std::ssize(order);
  std::vector<int64_t> least(order.size() + 1, 0), from(order.size() + 1, 0);
  for (int64_t end = 1; end <= count; ++end) {
    const auto last = static_cast<size_t>(order[static_cast<size_t>(end - 1)]);
    int64_t& best = least[static_cast<size_t>(end)];
    best = INT64_MAX;
    for (int64_t begin = end - 1; begin >= 0 && end - begin <= size; --begin) {
      const int64_t cost = least[static_cast<size_t>(begin)] + (end - begin) * lengths[last] + 32;
      if (cost >= best) continue;
      best = cost;
      from[static_cast<size_t>(end)] = begin;
    }
  }
  std::vector<std::vector<int64_t>> batches;
  for (int64_t end = count; end > 0; end = from[static_cast<size_t>(end)]) {
    batches.emplace(batches.begin(), order.begin() + from[static_cast<size_t>(end)],
                    order.begin() + end);
  }
  return batches;
}

TEST(BatchesByLength, are_those_that_trying_every_cut_finds) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> lengths(random() % 90);
    const int64_t longest = int64_t{1} << (random() % 10);
    for (int64_t& length : lengths) length = static_cast<int64_t>(random()) % longest;
    const auto size = static_cast<int64_t>(1 + random() % 40);
    EXPECT_EQ(batches_by_length(lengths, size), by_trying_all(lengths, size)) << round;
  }
}

TEST(BatchesByLength, of_large_windows_are_cut_soon) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<int64_t> lengths(400'000);
  for (const int64_t longest : {1, 100'000}) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] = static_cast<int64_t>(i) * 7919 % longest;
    }
    size_t places = 0;
    for (const auto& batch : batches_by_length(lengths, 65536)) {
      EXPECT_LE(batch.size(), 65536u);
      places += batch.size();
    }
    EXPECT_EQ(places, lengths.size());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

class EncoderTest : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  RunConfig config_;
  std::vector<std::string> broken_;
};

TEST_F(EncoderTest, gives_padding_no_target) {
  config_.data.eval.kind = "tensors";
  DataInfo info;
  info.vocab_size = 9;
  TensorMap tensors;
  tensors.set("inputs", at::tensor({5, 6, 7, 0}, at::kLong).view({1, 4}));
  tensors.set("attention_mask", at::tensor({1, 1, 1, 0}, at::kLong).view({1, 4}));
  const auto labels = [&](const std::string& kind) {
    config_.model.kind = kind;
    const Encoder encoder(config_, info, AnswerKind::tokens);
    const auto encoded = encoder.encode({Sample::of_tensors(tensors)});
    broken_.assign(1, "");
    const at::Tensor made = encoder.batch(encoded, {0}, broken_)["labels"].contiguous();
    return std::vector<int64_t>(made.const_data_ptr<int64_t>(),
                                made.const_data_ptr<int64_t>() + made.numel());
  };
  EXPECT_EQ(labels("gpt2"), (std::vector<int64_t>{6, 7, -100, -100}));
  EXPECT_EQ(labels("bert"), (std::vector<int64_t>{5, 6, 7, -100}));
}

TEST_F(EncoderTest, without_a_tokenizer_reads_no_texts) {
  config_.data.eval.kind = "text_table";
  TANREN_EXPECT_CONTAINS(
      error_of<ConfigError>([&] { Encoder(config_, DataInfo(), AnswerKind::classes); }),
      "the model has no tokenizer");
}

TEST_F(EncoderTest, marks_samples_that_the_model_cannot_read) {
  config_.data.eval.kind = "csv";
  DataInfo info;
  info.input_shape = {2};
  const Encoder encoder(config_, info, AnswerKind::classes);
  const auto encoded = encoder.encode(
      {Sample::of_numbers({1, 2}), Sample::of_numbers({1}), Sample::of_numbers({1, 1e300})});
  EXPECT_EQ(encoded.broken[0], "");
  TANREN_EXPECT_CONTAINS(encoded.broken[1], "has 1 number, and the model reads 2");
  TANREN_EXPECT_CONTAINS(encoded.broken[2], "too large");
}

TEST_F(EncoderTest, reads_tables_as_an_evaluation_does) {
  SourceOptions& source = config_.data.eval;
  source.kind = "csv";
  source.shape = {1, 2};
  source.scale = 0.3;
  source.offset = -0.1;
  source.path = folder_.file("x.csv", "a,label,b\n1,0,2.5\n-3,1,7\n");
  const auto data = open_dataset(source, "data.eval");
  const Encoder encoder(config_, data->info(), AnswerKind::classes);
  const auto encoded = encoder.encode({Sample::of_numbers({1, 2.5}), Sample::of_numbers({-3, 7})});
  expect_same_inputs(encoder.batch(encoded, {0, 1}, broken_), data->collate({0, 1}).batch);
}

TEST_F(EncoderTest, reads_encoded_tables_as_an_evaluation_does) {
  SourceOptions& source = config_.data.eval;
  source.kind = "csv";
  source.categories = {"c"};
  source.standardize = true;
  source.missing = "mean";
  source.path = folder_.file("x.csv", "a,label,c,b\n1,0,u,2.5\n-3,1,v,\n5,0,u,4\n");
  const auto data = open_dataset(source, "data.train");
  const Encoder encoder(config_, data->info(), AnswerKind::classes);
  std::vector<Sample> samples{Sample::of_cells({{"a", "1"}, {"c", "u"}, {"b", "2.5"}}),
                              Sample::of_cells({{"c", "v"}, {"b", ""}, {"a", "-3"}}),
                              Sample::of_cells({{"a", "5"}, {"b", "4"}, {"c", "u"}})};
  const auto encoded = encoder.encode(samples);
  for (const auto& broken : encoded.broken) EXPECT_EQ(broken, "");
  expect_same_inputs(encoder.batch(encoded, {0, 1, 2}, broken_), data->collate({0, 1, 2}).batch);
  EXPECT_EQ(encoder.probe({})["inputs"].sizes(), at::IntArrayRef({1, 4}));
}

TEST_F(EncoderTest, reads_texts_and_pairs_as_an_evaluation_does) {
  SourceOptions& source = config_.data.eval;
  source.kind = "text_table";
  source.context = 12;
  source.tokenizer = kWords;
  source.path = folder_.file("x.csv", "text,other,label\nthe a b,c,0\nc,the the the d,1\nd,a,0\n");
  for (const char* pair : {"", "other"}) {
    source.text_pair = pair;
    const bool pairs = *pair != '\0';
    const auto data = open_dataset(source, "data.eval");
    const Encoder encoder(config_, data->info(), AnswerKind::classes);
    const auto encoded = encoder.encode({Sample::of_text("the a b", pairs ? "c" : ""),
                                         Sample::of_text("c", pairs ? "the the the d" : ""),
                                         Sample::of_text("d", pairs ? "a" : "")});
    for (const auto& indices : {all_of(3), std::vector<int64_t>{2, 0}, std::vector<int64_t>{1}}) {
      expect_same_inputs(encoder.batch(encoded, indices, broken_), data->collate(indices).batch);
    }
    const Batch probe = encoder.probe({});
    EXPECT_EQ(probe["inputs"].sizes(), at::IntArrayRef({1, 12}));
    EXPECT_EQ(probe.fields.contains("token_types"), pairs);
  }
}

TEST_F(EncoderTest, goes_on_without_a_text_that_is_empty) {
  config_.data.eval.kind = "text_table";
  config_.data.eval.context = 12;
  DataInfo info;
  info.tokenizer = std::make_shared<const TokenizerFiles>(read_tokenizer_files(kWords));
  const Encoder encoder(config_, info, AnswerKind::classes);
  const auto encoded =
      encoder.encode({Sample::of_text(" "), Sample::of_text("a"), Sample::of_text("b c")});
  TANREN_EXPECT_CONTAINS(encoded.broken[0], "the text is empty");
  EXPECT_EQ(encoded.length(0), 0);
  EXPECT_LT(encoded.length(1), encoded.length(2));
  EXPECT_EQ(encoder.batch(encoded, {2, 1}, broken_)["inputs"].size(0), 2);
}

TEST_F(EncoderTest, goes_on_without_texts_that_are_no_utf_8) {
  config_.data.eval.kind = "text_table";
  config_.data.eval.text_pair = "other";
  config_.data.eval.context = 12;
  DataInfo info;
  info.tokenizer = std::make_shared<const TokenizerFiles>(read_tokenizer_files(kWords));
  const Encoder encoder(config_, info, AnswerKind::classes);
  const auto encoded =
      encoder.encode({Sample::of_text("a\xff", "b"), Sample::of_text("a", "\xe2\x82"),
                      Sample::of_text("a", std::string("b\0c", 3)), Sample::of_text("a", " ")});
  EXPECT_EQ(encoded.broken[0], "byte 2 (0xFF) of the text is no UTF-8; convert it");
  EXPECT_EQ(encoded.broken[1], "byte 1 (0xE2) of the second text is no UTF-8; convert it");
  EXPECT_EQ(encoded.broken[2], "");
  EXPECT_EQ(encoded.broken[3], "the second text is empty; fill it or drop the row");
}

TEST_F(EncoderTest, reads_images_as_an_evaluation_does_and_leaves_damaged_ones_out) {
  SourceOptions& source = config_.data.eval;
  source.kind = "images";
  source.size = {8};
  source.mean = {0.4, 0.5, 0.6};
  source.std = {0.2, 0.3, 0.4};
  source.path = folder_.path().string();
  for (const std::string name : {"cat", "dog"}) {
    fs::create_directories(folder_.path() / name);
    for (int i = 0; i < 2; ++i) {
      folder_.file(name + "/" + std::to_string(i) + ".jpg", testing::make_jpeg(17 + i, 12 + 3 * i));
    }
  }
  const auto data = open_dataset(source, "data.eval");
  const Encoder encoder(config_, data->info(), AnswerKind::classes);
  Sample file;
  file.image_file = (folder_.path() / "dog/1.jpg").string();
  std::vector<Sample> samples{Sample::of_image(read_file(folder_.path() / "cat/0.jpg")),
                              Sample::of_image(read_file(folder_.path() / "cat/1.jpg")),
                              Sample::of_image("no image"), file};
  const auto encoded = encoder.encode(samples);
  broken_.resize(4);
  const Batch made = encoder.batch(encoded, all_of(4), broken_);
  const Batch expected = data->collate({0, 1, 3}).batch;
  EXPECT_TRUE(at::equal(made["inputs"], expected["inputs"]));
  EXPECT_TRUE(at::equal(made.ids, expected.ids));
  EXPECT_FALSE(broken_[2].empty());
  EXPECT_TRUE(broken_[0].empty() && broken_[1].empty() && broken_[3].empty());
}

TEST_F(EncoderTest, puts_samples_of_one_shape_into_a_batch) {
  config_.data.eval.kind = "points";
  DataInfo info;
  info.input_shape = {kAnySize, 2};
  info.outputs = 2;
  const Encoder encoder(config_, info, AnswerKind::classes);
  std::vector<Sample> samples;
  for (const int64_t rows : {1, 3, 1, 3, 1, 2}) {
    TensorMap tensors;
    tensors.set("inputs", at::full({1, rows, 2}, std::ssize(samples)));
    samples.push_back(Sample::of_tensors(tensors));
  }
  samples[4].tensors.set("mask", at::ones({1, 1}));
  const auto encoded = encoder.encode(std::move(samples));
  broken_.resize(6);
  using Batches = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(batches_of(encoded, all_of(6), 8), (Batches{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(batches_of(encoded, {5, 3, 2, 1, 0}, 1), (Batches{{5}, {3}, {1}, {2}, {0}}));
  for (const auto& indices : batches_of(encoded, all_of(6), 8)) {
    const Batch batch = encoder.batch(encoded, indices, broken_);
    ASSERT_EQ(batch.size(), std::ssize(indices));
    for (int64_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(batch["inputs"][i][0][0].item<int64_t>(), indices[static_cast<size_t>(i)]);
    }
  }
}

TEST_F(EncoderTest, asks_for_the_next_token_where_no_target_is_given) {
  config_.data.eval.kind = "tensors";
  config_.model.kind = "gpt2";
  TensorMap tensors;
  tensors.set("inputs", at::tensor({3, 1, 2}, at::kLong).view({1, 3}));
  const Encoder encoder(config_, DataInfo(), AnswerKind::tokens);
  const auto encoded = encoder.encode({Sample::of_tensors(tensors), Sample::of_tensors(tensors)});
  const Batch batch = encoder.batch(encoded, {0, 1}, broken_);
  EXPECT_TRUE(at::equal(batch["labels"][1], at::tensor({1, 2, -100}, at::kLong)));
  TANREN_EXPECT_CONTAINS(encoder.encode({Sample()}).broken[0], "no tensor \"inputs\"");
}

}  // namespace
}  // namespace tanren
