// data.split of each kind of the library beside csv, images and text (split_source_test.cpp).
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/data/split.h"
#include "tanren/data/split_source.h"
#include "tanren/data/text/token_test_util.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {
namespace {

using testing::Ids;
using testing::TemporaryFolder;
using testing::whole_of;

class SplitKinds : public ::testing::Test {
 protected:
  static SplitSource parts_of(SourceOptions options, double share) {
    options.split = share;
    return open_split({}, std::move(options), "data.train");
  }

  TemporaryFolder folder_;
};

std::vector<int64_t> rows_in_source(const Dataset& data) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < data.size(); ++i) rows.push_back(data.source_row(i));
  return rows;
}

std::vector<bool> part_flags(const SplitSource& split) {
  std::vector<bool> flags(static_cast<size_t>(split.train->size() + split.eval->size()));
  for (const int64_t row : rows_in_source(*split.eval)) flags.at(static_cast<size_t>(row)) = true;
  for (const int64_t row : rows_in_source(*split.train)) {
    EXPECT_FALSE(flags.at(static_cast<size_t>(row))) << row;
  }
  return flags;
}

TEST_F(SplitKinds, rows_of_a_table_of_texts_are_split_by_their_cells) {
  const auto table = [&](const std::string& name, bool turned) {
    std::string text = "text,label\n";
    for (int i = 0; i < 40; ++i) {
      const int row = turned ? 39 - i : i;
      text += fmt::format("{} {},{}\n", static_cast<char>('a' + row % 20),
                          static_cast<char>('a' + row / 20), row % 2 == 0 ? "no" : "yes");
    }
    return SourceOptions{.kind = "text_table",
                         .path = folder_.file(name, text),
                         .context = 16,
                         .tokenizer = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt"};
  };
  const auto split = parts_of(table("a.csv", false), 0.2);
  EXPECT_EQ(split.how, "evaluation gets 8 of 40 rows (20.0 %, by hash, stratified over 2 classes)");
  EXPECT_EQ(split.eval->class_counts(), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(split.eval->info().class_names, (std::vector<std::string>{"no", "yes"}));
  const auto flags = part_flags(split);
  std::vector<bool> turned = part_flags(parts_of(table("b.csv", true), 0.2));
  std::reverse(turned.begin(), turned.end());
  EXPECT_EQ(flags, turned);
  // The documented hash covers each cell after its length, including the label.
  std::vector<uint64_t> hashes;
  std::vector<int64_t> classes;
  for (int i = 0; i < 40; ++i) {
    hashes.push_back(
        split_hash(fmt::format("3:{} {}0:{}", static_cast<char>('a' + i % 20),
                               static_cast<char>('a' + i / 20), i % 2 == 0 ? "2:no" : "3:yes")));
    classes.push_back(i % 2);
  }
  EXPECT_EQ(rows_in_source(*split.eval), split_rows(hashes, classes, 0.2, true));
}

TEST_F(SplitKinds, a_row_of_tensors_has_the_hash_of_the_hashes_of_its_fields) {
  TensorMap tensors;
  tensors.set("inputs", at::arange(60, at::kFloat).view({20, 3}));
  tensors.set("labels", at::arange(20, at::kLong).remainder(2));
  const std::string path = (folder_.path() / "rows.safetensors").string();
  write_safetensors(path, tensors);
  SourceOptions options{.kind = "tensors", .path = path};
  options.split = 0.5;
  const auto data = open_dataset(options, "data.train");
  const SplitKeys keys = data->split_keys();
  ASSERT_EQ(keys.hashes.size(), 20U);
  const SafetensorsFile written = read_safetensors(path);
  for (int64_t row = 0; row < 20; ++row) {
    std::vector<uint64_t> fields;
    for (const auto& [name, field] : written.tensors) {
      const at::Tensor one = field[row].contiguous();
      fields.push_back(split_hash(
          {static_cast<const char*>(one.const_data_ptr()), static_cast<size_t>(one.nbytes())}));
    }
    const std::string_view all(reinterpret_cast<const char*>(fields.data()),
                               fields.size() * sizeof fields[0]);
    EXPECT_EQ(keys.hashes[static_cast<size_t>(row)], split_hash(all)) << row;
  }
  data->drop_split_keys();  // from now on rows are hashed by number, without memory
  EXPECT_EQ(data->split_keys().hashes[7], split_hash(int64_t{7}));
}

Ids tokens_in(const Dataset& data) {
  Ids tokens;
  for (const auto& window : testing::rows_of(whole_of(data))) {
    if (tokens.empty()) tokens.push_back(window.inputs.front());
    for (const int64_t label : window.labels) {
      if (label >= 0) tokens.push_back(label);
    }
  }
  return tokens;
}

TEST_F(SplitKinds, a_file_of_tokens_of_two_bytes_gives_its_end_and_no_token_twice) {
  std::vector<uint16_t> ids;
  for (uint16_t i = 0; i < 500; ++i) ids.push_back(static_cast<uint16_t>(300 + i));
  const SourceOptions options{
      .kind = "tokens",
      .path = folder_.file("a.bin",
                           {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]}),
      .context = 8,
      .vocab_size = 1000};
  const auto split = parts_of(options, 0.1);
  Ids all = tokens_in(*split.train);
  EXPECT_EQ(all.size(), 450U);
  for (const int64_t token : tokens_in(*split.eval)) all.push_back(token);
  ASSERT_EQ(all.size(), 500U);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(300 + i));
}

TEST_F(SplitKinds, an_empty_file_of_text_is_no_part) {
  std::filesystem::create_directories(folder_.path() / "texts");
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) {
    folder_.file(std::string("texts/") + name + ".txt", "");
  }
  folder_.file("texts/h.txt", std::string(100, 'h'));
  const SourceOptions options{
      .kind = "text", .path = (folder_.path() / "texts").string(), .context = 4};
  const auto one = parts_of(options, 0.25);  // the only file, cut
  EXPECT_EQ(tokens_in(*one.train).size(), 75U);
  EXPECT_EQ(tokens_in(*one.eval).size(), 25U);
  folder_.file("texts/i.txt", std::string(100, 'i'));
  const auto two = parts_of(options, 0.25);
  EXPECT_EQ(tokens_in(*two.train).size(), 100U);
  EXPECT_EQ(tokens_in(*two.eval).size(), 100U);
}

TEST_F(SplitKinds, pairs_and_images_are_split_by_name_and_know_their_row_in_the_source) {
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) names.push_back(std::to_string(i));
  std::vector<uint64_t> pairs, files;
  std::vector<int64_t> classes;
  for (const char* folder : {"pairs/inputs", "pairs/targets", "images/a", "images/b"}) {
    std::filesystem::create_directories(folder_.path() / folder);
    for (const auto& name : names) {
      folder_.file(fmt::format("{}/{}.jpg", folder, name), testing::make_jpeg(16, 16));
    }
  }
  for (const auto& name : names) pairs.push_back(split_hash(name));
  for (const char* folder : {"a", "b"}) {
    for (const auto& name : names) {
      files.push_back(split_hash(fmt::format("{}/{}.jpg", folder, name)));
      classes.push_back(*folder - 'a');
    }
  }

  SourceOptions options{.kind = "pairs", .path = (folder_.path() / "pairs").string(), .size = {8}};
  const auto paired = parts_of(options, 0.3);
  EXPECT_EQ(rows_in_source(*paired.eval), split_rows(pairs, {}, 0.3, true));
  EXPECT_EQ(rows_in_source(*paired.train), split_rows(pairs, {}, 0.3, false));
  TANREN_EXPECT_CONTAINS(paired.how, " of 10 pairs (");
  const int64_t first = paired.eval->source_row(0);
  EXPECT_EQ(paired.eval->sample_name(0), std::to_string(first));
  EXPECT_EQ(whole_of(*paired.eval).batch.size(), paired.eval->size());

  options.kind = "images";
  options.path = (folder_.path() / "images").string();
  const auto pictured = parts_of(options, 0.3);
  EXPECT_EQ(rows_in_source(*pictured.eval), split_rows(files, classes, 0.3, true));
  for (int64_t i = 0; i < pictured.eval->size(); ++i) {
    const int64_t row = pictured.eval->source_row(i);
    EXPECT_EQ(pictured.eval->sample_name(i),
              fmt::format("{}/{}.jpg", row < 10 ? "a" : "b", row % 10));
  }
}

}  // namespace
}  // namespace tanren
