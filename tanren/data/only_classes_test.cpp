#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

SourceOptions csv(const TemporaryFolder& folder, std::vector<std::string> only) {
  SourceOptions options;
  options.kind = "csv";
  options.path = folder.file("rows.csv", "label,a\n0,10\n2,12\n1,11\n2,13\n0,14\n");
  options.only_classes = std::move(only);
  return options;
}

TEST(OnlyClasses, absent_ones_and_words_for_numbers_are_refused) {
  const TemporaryFolder folder;
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] {
                           open_dataset(csv(folder, {"0", "7"}), "data.train");
                         }),
                         "no sample has the class 7");
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([&] {
                           open_dataset(csv(folder, {"0", "cat"}), "data.train");
                         }),
                         "\"cat\", classes here are whole numbers");
}

TEST(OnlyClasses, a_csv_keeps_their_rows_in_order_and_numbers_them_as_listed) {
  const TemporaryFolder folder;
  const auto dataset = open_dataset(csv(folder, {"2", "0"}), "data.train");
  EXPECT_EQ(dataset->info().outputs, 2);
  EXPECT_EQ(dataset->info().class_names, (std::vector<std::string>{"2", "0"}));
  ASSERT_EQ(dataset->size(), 4);
  const Batch batch = dataset->collate({0, 1, 2, 3}).batch;
  EXPECT_TRUE(at::equal(batch["labels"], at::tensor({1, 0, 0, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(batch["inputs"].flatten(), at::tensor({10.0F, 12.0F, 13.0F, 14.0F})));
}

TEST(OnlyClasses, tensors_keep_the_rows_of_every_field) {
  const TemporaryFolder folder;
  SourceOptions options;
  options.kind = "tensors";
  options.path = (folder.path() / "rows.safetensors").string();
  TensorMap fields;
  fields.set("inputs", at::arange(6).to(at::kFloat).reshape({3, 2}));
  fields.set("labels", at::tensor({4, 1, 3}, at::kLong));
  fields.set("weights", at::arange(3));
  write_safetensors(options.path, fields);
  options.only_classes = {"3", "4"};
  const auto dataset = open_dataset(options, "data.train");
  const Batch batch = dataset->collate({0, 1}).batch;
  EXPECT_TRUE(at::equal(batch["labels"], at::tensor({1, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(batch["weights"], at::tensor({0, 2}, at::kLong)));
  options.only_classes = {"3", "9"};
  EXPECT_THROW(open_dataset(options, "data.train"), DataError);
}

TEST(OnlyClasses, images_keep_the_folders_of_these_names) {
  const TemporaryFolder folder;
  for (const char* name : {"cat", "cow", "dog"}) {
    std::filesystem::create_directories(folder.path() / name);
    folder.file(std::string(name) + "/0.jpg", testing::make_jpeg(16, 12));
  }
  SourceOptions options;
  options.kind = "images";
  options.path = folder.path().string();
  options.size = {8};
  options.only_classes = {"dog", "cat"};
  const auto dataset = open_dataset(options, "data.train");
  EXPECT_EQ(dataset->info().class_names, options.only_classes);
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_TRUE(at::equal(dataset->collate({0, 1}).batch["labels"], at::tensor({0, 1}, at::kLong)));
  options.only_classes = {"dog", "horse"};
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] { open_dataset(options, "data.train"); }),
                         "no class folder \"horse\"");
}

}  // namespace
}  // namespace tanren
