#include "tanren/data/split_source.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/data/split.h"
#include "tanren/data/text/token_test_util.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace tanren {
namespace {

using testing::make_jpeg;
using testing::rows_of;
using testing::TemporaryFolder;
using testing::whole_of;

SplitSource opened(SourceOptions options, double share, const DatasetRegistry& kinds = {}) {
  options.split = share;
  return open_split(kinds, std::move(options), "data.train");
}

// The first number of "inputs" of each sample.
std::vector<float> firsts(const Dataset& data) {
  const at::Tensor inputs = whole_of(data).batch["inputs"].flatten(1).select(1, 0).contiguous();
  const auto* from = inputs.const_data_ptr<float>();
  return {from, from + inputs.numel()};
}

// A table whose column a is the row's number.
std::string table(int64_t rows, int64_t classes) {
  std::string text = "label,a,b\n";
  for (int64_t row = 0; row < rows; ++row) text += fmt::format("{},{},7\n", row % classes, row);
  return text;
}

class SplitSources : public ::testing::Test {
 protected:
  SourceOptions csv(const std::string& text) const {
    return {.kind = "csv", .path = folder_.file("rows.csv", text)};
  }
  void images(const std::string& one, int count) const {
    std::filesystem::create_directories(folder_.path() / "images" / one);
    for (int i = 0; i < count; ++i) {
      folder_.file(fmt::format("images/{}/{}.jpg", one, i), make_jpeg(16, 16));
    }
  }
  SourceOptions image_options() const {
    return {.kind = "images", .path = (folder_.path() / "images").string(), .size = {8}};
  }
  std::string error(const SourceOptions& options, double share) const {
    return testing::error_of<DataError>([&] { opened(options, share); });
  }

  TemporaryFolder folder_;
};

TEST_F(SplitSources, too_few_different_rows_for_a_part_are_an_error) {
  TANREN_EXPECT_CONTAINS(error(csv("label,a\n0,1\n"), 0.5),
                         "[data.train] data.split = 0.5 finds none of 1 rows for evaluation: there "
                         "is no other; give more data, or drop it and give [data.eval]");
  TANREN_EXPECT_CONTAINS(error(csv("label,a\n0,1\n1,1\n1,1\n"), 0.5),
                         "none of 3 rows for evaluation: no class has two different ones");
  SourceOptions values = csv("label,a\n0.5,1\n0.5,1\n");
  values.label_type = "value";
  TANREN_EXPECT_CONTAINS(error(values, 0.5), "none of 2 rows for evaluation: all are equal");
}

TEST_F(SplitSources, a_table_gives_each_class_its_share_and_every_row_once) {
  const auto [train, eval, how] = opened(csv(table(1000, 4)), 0.1);
  EXPECT_EQ(how, "evaluation gets 100 of 1000 rows (10.0 %, by hash, stratified over 4 classes)");
  EXPECT_EQ(train->class_counts(), (std::vector<int64_t>(4, 225)));
  EXPECT_EQ(eval->class_counts(), (std::vector<int64_t>(4, 25)));
  EXPECT_EQ(train->info().outputs, 4);
  EXPECT_EQ(eval->info().feature_names, train->info().feature_names);
  std::vector<float> all = firsts(*train);
  for (const float row : firsts(*eval)) all.push_back(row);
  std::sort(all.begin(), all.end());
  for (size_t row = 0; row < all.size(); ++row) EXPECT_EQ(all[row], static_cast<float>(row));
  EXPECT_EQ(all.size(), 1000U);
  EXPECT_EQ(firsts(*opened(csv(table(1000, 4)), 0.1).eval), firsts(*eval));
}

TEST_F(SplitSources, a_subset_numbers_its_samples_from_0) {
  const auto split = opened(csv(table(60, 3)), 0.2);
  const Collated last = collated(*split.eval, {split.eval->size() - 1, 0});
  EXPECT_EQ(last.batch.ids[0].item<int64_t>(), split.eval->size() - 1);
  EXPECT_EQ(last.batch.ids[1].item<int64_t>(), 0);
  EXPECT_EQ(last.counts.at("samples"), 2);
  EXPECT_THROW(split.eval->collate({split.eval->size()}), DataError);
  EXPECT_THROW(split.eval->collate({-1}), DataError);
}

TEST_F(SplitSources, the_order_of_rows_and_copies_of_them_change_no_part) {
  SourceOptions values = csv(table(200, 5));
  values.label_type = "value";
  const auto before = firsts(*opened(values, 0.3).eval);
  std::string turned = "label,a,b\n";
  for (int64_t row = 399; row >= 0; --row) {
    turned += fmt::format("{},{},7\n", row % 200 % 5, row % 200);
  }
  folder_.file("rows.csv", turned);
  auto after = firsts(*opened(values, 0.3).eval);
  std::sort(after.begin(), after.end());
  ASSERT_EQ(after.size(), 2 * before.size());
  for (size_t row = 0; row < after.size(); ++row) EXPECT_EQ(after[row], before[row / 2]);
}

TEST_F(SplitSources, other_keys_of_the_table_change_no_part) {
  SourceOptions options = csv(table(90, 3));
  const auto plain = firsts(*opened(options, 0.2).eval);
  options.scale = 2;
  auto scaled = firsts(*opened(options, 0.2).eval);
  for (float& value : scaled) value /= 2;
  EXPECT_EQ(scaled, plain);

  options.scale = 1;
  options.only_classes = {"2", "0"};
  const auto chosen = opened(options, 0.2);
  std::vector<float> expected;
  for (const float row : plain) {
    if (static_cast<int64_t>(row) % 3 != 1) expected.push_back(row);
  }
  EXPECT_EQ(firsts(*chosen.eval), expected);
  EXPECT_EQ(chosen.eval->info().class_names, options.only_classes);
  EXPECT_EQ(chosen.eval->class_counts(), (std::vector<int64_t>{6, 6}));
}

TEST_F(SplitSources, equal_rows_of_tensors_lie_in_one_part) {
  const at::Tensor numbers = at::arange(300).remainder(100);
  TensorMap tensors;
  tensors.set("inputs", numbers.to(at::kFloat).unsqueeze(1));
  tensors.set("labels", numbers.remainder(2));
  const std::string path = (folder_.path() / "rows.safetensors").string();
  write_safetensors(path, tensors);
  const auto [train, eval, how] = opened({.kind = "tensors", .path = path}, 0.2);
  EXPECT_EQ(how, "evaluation gets 60 of 300 rows (20.0 %, by hash, stratified over 2 classes)");
  const auto seen = firsts(*eval), learnt = firsts(*train);
  const std::set<float> in_eval(seen.begin(), seen.end());
  EXPECT_EQ(in_eval.size(), 20U);
  for (const float row : learnt) EXPECT_EQ(in_eval.count(row), 0U);
}

TEST_F(SplitSources, synthetic_samples_are_split_alike_whether_they_are_held_or_made_each_time) {
  const SourceOptions small{.kind = "synthetic",
                            .fields = {"labels: int[] in [0, 4]", "inputs: float[1] in [0, 1]"},
                            .samples = 5000};
  SourceOptions large = small;  // too large to be made only once
  large.fields[1] = "inputs: float[4096] in [0, 1]";
  const auto held = opened(small, 0.1), made = opened(large, 0.1);
  EXPECT_EQ(held.how, made.how);
  const auto labels = [](const Dataset& data) {
    return collated(data, {0, 1, 2, 3}).batch["labels"];
  };
  EXPECT_TRUE(labels(*held.eval).equal(labels(*made.eval)));
  EXPECT_TRUE(labels(*held.train).equal(labels(*made.train)));
}

TEST_F(SplitSources, images_are_split_by_name_and_evaluation_augments_nothing) {
  images("cat", 20);
  images("dog", 10);
  SourceOptions options = image_options();
  options.flip = 1;
  const auto [train, eval, how] = opened(options, 0.2);
  EXPECT_EQ(how, "evaluation gets 6 of 30 images (20.0 %, by hash, stratified over 2 classes)");
  EXPECT_EQ(train->class_counts(), (std::vector<int64_t>{16, 8}));
  EXPECT_EQ(eval->class_counts(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(eval->info().class_names, (std::vector<std::string>{"cat", "dog"}));
  const at::Tensor seen = collated(*eval, {0}).batch["inputs"];
  EXPECT_TRUE(seen.equal(collated(*train, {0}).batch["inputs"]));
  EXPECT_FALSE(seen.equal(collated_for_training(*train, {0}, {}).batch["inputs"]));

  // Other images under the same names leave the choice unchanged.
  const auto parts = [](const Dataset& data) { return data.parts().front().hash; };  // names
  const uint64_t before = parts(*eval);
  for (int i = 0; i < 20; ++i) folder_.file(fmt::format("images/cat/{}.jpg", i), make_jpeg(24, 16));
  EXPECT_EQ(parts(*opened(options, 0.2).eval), before);
}

TEST_F(SplitSources, a_damaged_image_is_replaced_by_one_of_its_own_part) {
  images("cat", 12);
  images("dog", 12);
  std::vector<std::string> names;
  std::vector<uint64_t> hashes;
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < 24; ++i) {
    names.push_back(fmt::format("{}/{}.jpg", i < 12 ? "cat" : "dog", i % 12));
    hashes.push_back(split_hash(names.back()));
    classes.push_back(i / 12);
  }
  // All images of evaluation are black. Only one image of training can be decoded.
  const std::string black = make_jpeg(16, 16, {}, [](int width, int, unsigned char* row) {
    std::fill(row, row + 3 * width, static_cast<unsigned char>(0));
  });
  std::string rotten = make_jpeg(64, 64);
  std::fill(rotten.begin() + std::ssize(rotten) / 3, rotten.end() - 2, '\xFF');
  rotten[rotten.size() - 3] = '\x00';
  const auto write = [&](bool eval, const std::string& bytes, size_t from) {
    const auto rows = split_rows(hashes, classes, 0.25, eval);
    for (size_t i = from; i < rows.size(); ++i) {
      folder_.file("images/" + names[static_cast<size_t>(rows[i])], bytes);
    }
    return std::ssize(rows);
  };
  EXPECT_EQ(write(true, black, 0), 6);
  EXPECT_EQ(write(false, rotten, 1), 18);

  SourceOptions options = image_options();
  options.broken = "skip";
  const auto split = opened(options, 0.25);
  EXPECT_EQ(whole_of(*split.eval).batch.size(), 6);
  EXPECT_LT(whole_of(*split.eval).batch["inputs"].max().item<float>(), 0.1F);
  const Batch trained = whole_of(*split.train, /*training=*/true).batch;
  EXPECT_EQ(trained.size(), 18);
  EXPECT_GT(trained["inputs"].flatten(1).amax(1).min().item<float>(), 0.5F);
}

std::vector<int64_t> bytes_in(const Dataset& data) {
  std::vector<int64_t> bytes;
  for (const auto& window : rows_of(whole_of(data))) {
    if (bytes.empty()) bytes.push_back(window.inputs.front());
    for (const int64_t label : window.labels) {
      if (label >= 0) bytes.push_back(label);
    }
  }
  return bytes;
}

TEST_F(SplitSources, one_file_of_text_gives_its_end_and_no_byte_twice) {
  std::string text;
  for (int i = 0; i < 250; ++i) text += static_cast<char>(i);
  SourceOptions options{.kind = "text", .path = folder_.file("a.txt", text), .context = 8};
  for (const int64_t stride : {0, 3}) {
    options.stride = stride;
    const auto [train, eval, how] = opened(options, 0.1);
    TANREN_EXPECT_CONTAINS(how, "windows (");
    std::vector<int64_t> all = bytes_in(*train);
    EXPECT_EQ(all.size(), 225U);
    for (const int64_t byte : bytes_in(*eval)) all.push_back(byte);
    ASSERT_EQ(all.size(), 250U);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(i));
  }
  options.stride = 0;
  options.context = 32;
  TANREN_EXPECT_CONTAINS(error(options, 0.1),
                         "[data.train] there are 25 tokens in the evaluation part of data.split = "
                         "0.1, too few for one window: context = 32 needs 33; lower "
                         "data.train.context, change data.split or give more data");
  options.part = {0, 0.5};
  options.context = 8;
  EXPECT_EQ(bytes_in(*opened(options, 0.2).eval).front(), 100);
  EXPECT_EQ(bytes_in(*opened(options, 0.2).train).back(), 99);
}

TEST_F(SplitSources, files_of_text_are_split_by_name) {
  std::filesystem::create_directories(folder_.path() / "texts");
  const auto write = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      folder_.file(fmt::format("texts/{}.txt", i), std::string(20, static_cast<char>(i)));
    }
  };
  write(0, 20);
  const SourceOptions options{
      .kind = "text", .path = (folder_.path() / "texts").string(), .context = 4};
  const auto files = [&](double share, bool eval) {
    const auto split = opened(options, share);
    const auto bytes = bytes_in(eval ? *split.eval : *split.train);
    return std::set<int64_t>(bytes.begin(), bytes.end());
  };
  const auto train = files(0.3, false), eval = files(0.3, true);
  EXPECT_EQ(train.size() + eval.size(), 20U);
  for (const int64_t file : eval) EXPECT_EQ(train.count(file), 0U);
  write(20, 60);
  const auto more = files(0.3, true);
  EXPECT_TRUE(std::includes(more.begin(), more.end(), eval.begin(), eval.end()));
  for (const int64_t file : train) EXPECT_EQ(more.count(file), 0U);
}

// A program's dataset of samples 0, 1, … with names, augmentation, and ids that may be wrong.
class Counted : public Dataset {
 public:
  explicit Counted(int64_t shift) : shift_(shift) {}
  int64_t size() const override { return 50; }
  DataInfo info() const override { return {.input_shape = {1}}; }
  std::string sample_name(int64_t index) const override { return fmt::format("n{}", index); }
  Collated collate(const std::vector<int64_t>& indices) const override { return make(indices, 0); }
  Collated collate_training(const std::vector<int64_t>& indices, const Draw&) const override {
    return make(indices, 1000);
  }

 private:
  Collated make(const std::vector<int64_t>& indices, int64_t more) const {
    Collated made;
    made.batch.ids = tanren::ids_of(indices) + shift_;
    made.batch.fields.set("inputs", (made.batch.ids + more).to(at::kFloat).unsqueeze(1));
    return made;
  }
  int64_t shift_;
};

DatasetRegistry with_counted(int64_t shift) {
  DatasetRegistry kinds;
  kinds.add("counted", [shift](const SourceOptions&, const std::string&, const DataInfo*) {
    return std::make_unique<Counted>(shift);
  });
  return kinds;
}

TEST(SplitOfAProgram, a_registered_kind_is_split_by_the_numbers_of_its_samples) {
  const auto [train, eval, how] = opened({.kind = "counted"}, 0.2, with_counted(0));
  EXPECT_EQ(train->size() + eval->size(), 50);
  TANREN_EXPECT_CONTAINS(how, " of 50 samples (");
  TANREN_EXPECT_CONTAINS(how, "by hash)");
  const auto rows = firsts(*eval);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    EXPECT_EQ(eval->sample_name(index), fmt::format("n{}", rows[i]));
    const Collated made = collated_for_training(*eval, {index}, {});
    EXPECT_EQ(made.batch["inputs"].item<float>(), rows[i] + 1000);
    EXPECT_EQ(made.batch.ids.item<int64_t>(), index);
  }
  EXPECT_TRUE(train->class_counts().empty());
  EXPECT_NE(train->parts().back().hash, eval->parts().back().hash);
}

TEST(SplitOfAProgram, samples_of_the_other_part_are_refused) {
  const auto split = opened({.kind = "counted"}, 0.5, with_counted(1));
  const auto all = [&] { whole_of(*split.train); };
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>(all),
                         "which is not in this part of data.split");
}

}  // namespace
}  // namespace tanren
