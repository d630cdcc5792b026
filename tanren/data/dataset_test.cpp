#include "tanren/data/dataset.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"

#include <numeric>

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

std::unique_ptr<Dataset> open_fields(const TensorMap& fields, SourceOptions options = {}) {
  const TemporaryFolder folder;
  options.kind = "tensors";
  options.path = (folder.path() / "set.safetensors").string();
  write_safetensors(options.path, fields);
  return open_dataset(options, "data.eval");
}

std::string tensors_error(const TensorMap& fields, const SourceOptions& options = {}) {
  return testing::error_of<DataError>([&] { open_fields(fields, options); });
}

TensorMap fields_of(const at::Tensor& inputs, const at::Tensor& labels) {
  TensorMap fields;
  fields.set("inputs", inputs);
  fields.set("labels", labels);
  return fields;
}

TEST(Dataset, an_unknown_kind_names_the_known_ones) {
  const auto error =
      testing::error_of<ConfigError>([] { open_dataset({.kind = "cvs"}, "data.train"); });
  TANREN_EXPECT_CONTAINS(error, "\"cvs\"");
  TANREN_EXPECT_CONTAINS(error,
                         "csv, images, pairs, tensors, synthetic, text, text_table or tokens");
}

TEST(TensorDataset, an_index_outside_is_refused) {
  const TensorDataset dataset(fields_of(at::zeros({3, 2}), at::arange(3)), {}, "data.train");
  EXPECT_THROW(dataset.collate({0, 3}), DataError);
  EXPECT_THROW(dataset.collate({-1}), DataError);
}

TEST(TensorDataset, collates_rows_in_the_order_asked_with_ids_and_counts) {
  const auto inputs = at::arange(24, at::kFloat).view({4, 3, 2});
  const TensorDataset dataset(fields_of(inputs, at::arange(4)), {}, "data.train");
  const auto collated = dataset.collate({3, 0, 3});
  const auto order = at::tensor({3, 0, 3}, at::kLong);
  EXPECT_TRUE(at::equal(collated.batch["inputs"], inputs.index_select(0, order)));
  EXPECT_TRUE(at::equal(collated.batch["labels"], order));
  EXPECT_TRUE(at::equal(collated.batch.ids, order));
  EXPECT_EQ(collated.counts, (Counts{{"samples", 3}}));
}

TEST(TensorDataset, collates_strided_fields_empty_fields_and_no_samples) {
  const auto inputs = at::arange(8, at::kFloat).view({2, 4}).t();
  const TensorDataset dataset(fields_of(inputs, at::empty({4, 0})), {}, "data.train");
  EXPECT_TRUE(at::equal(dataset.collate({2}).batch["inputs"], at::tensor({2.f, 6.f}).view({1, 2})));
  const auto none = dataset.collate({});
  EXPECT_EQ(none.batch.size(), 0);
  EXPECT_EQ(none.batch["inputs"].sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(none.counts.at("samples"), 0);
}

TEST(Tensors, refuses_fields_that_do_not_share_their_samples) {
  TANREN_EXPECT_CONTAINS(tensors_error(fields_of(at::zeros({3, 2}), at::arange(4))),
                         "labels has 4");
  TANREN_EXPECT_CONTAINS(tensors_error(fields_of(at::zeros({3}), at::scalar_tensor(1))), "scalar");
  TANREN_EXPECT_CONTAINS(tensors_error(fields_of(at::zeros({0, 2}), at::zeros({0}))), "no samples");
  TANREN_EXPECT_CONTAINS(tensors_error({}), "no samples");
}

TEST(Tensors, refuses_non_finite_values_and_names_their_row) {
  auto inputs = at::zeros({4, 2, 2});
  inputs[2][1][0] = std::numeric_limits<float>::quiet_NaN();
  const auto error = tensors_error(fields_of(inputs, at::arange(4)));
  TANREN_EXPECT_CONTAINS(error, "tensor inputs holds NaN or infinity in row 2");
  TANREN_EXPECT_CONTAINS(error, "set.safetensors");
  EXPECT_THROW(open_fields(fields_of(at::full({1}, INFINITY), at::zeros({1}))), DataError);
}

TEST(Tensors, a_label_out_of_range_names_row_value_and_bound) {
  const auto labels = at::tensor({0, 9, 12, 14}, at::kLong);
  const auto error = tensors_error(fields_of(at::zeros({4, 2}), labels), {.classes = 10});
  TANREN_EXPECT_CONTAINS(error, "label 12 of row 2 is out of range [0, 10)");
  const auto map = at::tensor({0, 1, 1, -3}, at::kLong).view({2, 2});
  TANREN_EXPECT_CONTAINS(tensors_error(fields_of(at::zeros({2, 2}), map)),
                         "label -3 of row 1 is out of range [0, 2)");
}

TEST(Tensors, tokens_that_cannot_be_are_refused_by_name) {
  const auto ids = at::tensor({1, 2, 3, 0}, at::kLong).view({2, 2});
  const auto classes = at::arange(2);
  TANREN_EXPECT_CONTAINS(tensors_error(fields_of(ids - 1, classes)), "tensor inputs holds -1");
  auto fields = fields_of(ids, classes);
  fields.set("attention_mask", at::ones({2, 3}));
  TANREN_EXPECT_CONTAINS(tensors_error(fields), "attention_mask has not the shape of inputs");
  TANREN_EXPECT_CONTAINS(tensors_error(fields_of(ids, ids - 3)), "other than -100 (no label)");
}

TEST(Tensors, whole_numbers_in_rows_are_tokens_with_a_class_each_or_a_token_each) {
  const auto ids = at::tensor({1, 2, 3, 0, 4, 4}, at::kInt).view({2, 3});
  auto fields = fields_of(ids, at::arange(2));
  fields.set("token_types", at::tensor({0, 0, 1, 0, 1, 1}, at::kInt).view({2, 3}));
  fields.set("attention_mask", at::ones({2, 3}));
  const auto sentences = open_fields(fields);
  EXPECT_EQ(sentences->info().vocab_size, 5);
  EXPECT_EQ(sentences->info().token_types, 2);
  EXPECT_EQ(sentences->info().outputs, 2);
  const auto collated = sentences->collate({1});
  EXPECT_EQ(collated.batch["inputs"].scalar_type(), at::kLong);
  EXPECT_EQ(collated.counts, (Counts{{"samples", 1}}));

  auto labels = ids.to(at::kLong) + 4;
  labels[0][1] = -100;
  const auto language = open_fields(fields_of(ids, labels));
  EXPECT_EQ(language->info().vocab_size, 9);
  EXPECT_EQ(language->info().outputs, 9);
  EXPECT_EQ(language->collate({0, 1}).counts, (Counts{{"samples", 2}, {"tokens", 5}}));
  EXPECT_EQ(open_fields(fields_of(at::zeros({2, 3}), at::arange(2)))->info().vocab_size, 0);
}

TEST(Tensors, a_truncated_file_is_one_line) {
  const TemporaryFolder folder;
  const auto path = folder.file("cut.safetensors", "0123456789");
  const auto error = testing::error_of<DataError>(
      [&] { open_dataset({.kind = "tensors", .path = path}, "data.train"); });
  TANREN_EXPECT_CONTAINS(error, "cut.safetensors");
}

// Issue 22: a very large label allocated 40 GB of counts, or threw bad_alloc.
TEST(Tensors, a_label_far_off_is_a_slip_unless_the_classes_are_announced) {
  for (const int64_t far : {int64_t{1} << 33, INT64_MAX}) {
    const auto fields =
        fields_of(at::rand({3, 2}), at::tensor({int64_t{0}, int64_t{1}, far}, at::kLong));
    const auto error = testing::error_of<DataError>([&] { open_fields(fields); });
    TANREN_EXPECT_CONTAINS(error, "of row 2 is out of range [0, 1000000)");
    TANREN_EXPECT_CONTAINS(error, "data.train.classes");
  }
}

TEST(Tensors, names_become_fields_and_the_data_says_what_a_model_needs) {
  auto fields = fields_of(at::rand({5, 3, 2}, at::kDouble), at::arange(5, at::kInt));
  fields.set("weight", at::rand({5}));
  const auto dataset = open_fields(fields);
  EXPECT_EQ(dataset->size(), 5);
  EXPECT_EQ(dataset->info().input_shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(dataset->info().outputs, 5);
  EXPECT_TRUE(dataset->info().class_labels);
  const Batch batch = dataset->collate({4, 1}).batch;
  EXPECT_EQ(batch["inputs"].scalar_type(), at::kFloat);
  EXPECT_EQ(batch["labels"].scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(batch["labels"], at::tensor({4, 1}, at::kLong)));
  EXPECT_TRUE(batch.fields.contains("weight"));
}

TEST(Tensors, floating_labels_are_values_as_many_as_their_row_is_wide) {
  const auto info = open_fields(fields_of(at::zeros({3, 2}), at::zeros({3, 4})))->info();
  EXPECT_FALSE(info.class_labels);
  EXPECT_EQ(info.outputs, 4);
}

SourceOptions synthetic(std::vector<std::string> fields, int64_t samples) {
  return {.kind = "synthetic", .fields = std::move(fields), .samples = samples};
}

TEST(Synthetic, a_field_that_is_not_understood_is_quoted_with_an_example) {
  const auto error_of_field = [](const std::string& field) {
    auto error =
        testing::error_of<ConfigError>([&] { open_dataset(synthetic({field}, 4), "data.train"); });
    TANREN_EXPECT_CONTAINS(error, "\"" + field + "\"");
    TANREN_EXPECT_CONTAINS(error, "float[1,8,8] in [-1, 1]");
    return error;
  };
  error_of_field("inputs");
  error_of_field("inputs: double[2] in [0, 1]");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[0] in [0, 1]"), "empty shape");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[2] in [1, 0]"), "empty range");
  TANREN_EXPECT_CONTAINS(error_of_field("a: int[2] in [0, 1.5]"), "whole numbers");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[2,,3] in [0, 1]"), "no number");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[2 3] in [0, 1]"), "no number");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[,2] in [0, 1]"), "no number");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[2] in [0, 1e]"), "\"1e\", which is no");
  TANREN_EXPECT_CONTAINS(error_of_field("a: float[100000,100000] in [0, 1]"), "billion");
}

TEST(Synthetic, needs_samples_fields_and_different_names) {
  const std::string field = "a: float[] in [0, 1]";
  EXPECT_THROW(open_dataset(synthetic({field}, 0), "data.train"), ConfigError);
  EXPECT_THROW(open_dataset(synthetic({field}, -5), "data.train"), ConfigError);
  EXPECT_THROW(open_dataset(synthetic({}, 5), "data.train"), ConfigError);
  EXPECT_THROW(open_dataset(synthetic({field, field}, 5), "data.train"), ConfigError);
  EXPECT_THROW(open_dataset(synthetic({"labels: int[] in [-1, 3]"}, 5), "data.train"), ConfigError);
}

TEST(Synthetic, values_lie_in_their_range_and_reach_its_ends) {
  const auto dataset = open_dataset(
      synthetic({"inputs: float[1,4,4] in [-1, 3]", "labels: int[] in [0, 9]"}, 200), "data.train");
  EXPECT_EQ(dataset->info().outputs, 10);
  EXPECT_EQ(dataset->info().input_shape, (std::vector<int64_t>{1, 4, 4}));
  std::vector<int64_t> all(200);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = dataset->collate(all).batch;
  EXPECT_EQ(batch["inputs"].sizes(), (std::vector<int64_t>{200, 1, 4, 4}));
  EXPECT_GE(batch["inputs"].min().item<float>(), -1);
  EXPECT_LE(batch["inputs"].max().item<float>(), 3);
  EXPECT_NEAR(batch["inputs"].mean().item<float>(), 1, 0.1);
  EXPECT_NEAR(batch["inputs"].std().item<float>(), 4 / std::sqrt(12.0), 0.1);
  EXPECT_EQ(batch["labels"].min().item<int64_t>(), 0);
  EXPECT_EQ(batch["labels"].max().item<int64_t>(), 9);
}

TEST(Synthetic, a_sample_is_a_function_of_its_index_however_many_there_are) {
  const std::vector<std::string> fields = {"inputs: float[64] in [0, 1]",
                                           "labels: int[] in [0, 9]"};
  const auto few = open_dataset(synthetic(fields, 10), "data.train");
  const auto many =
      open_dataset(synthetic(fields, int64_t{1} << 40), "data.train");  // not made at once
  EXPECT_EQ(many->size(), int64_t{1} << 40);
  const Batch a = few->collate({7, 2}).batch;
  const Batch b = many->collate({2, 7, 123456789012}).batch;
  EXPECT_TRUE(at::equal(a["inputs"][0], b["inputs"][1]));
  EXPECT_TRUE(at::equal(a["inputs"][1], b["inputs"][0]));
  EXPECT_TRUE(at::equal(a["labels"][0], b["labels"][1]));
  EXPECT_FALSE(at::equal(b["inputs"][0], b["inputs"][1]));
}

}  // namespace
}  // namespace tanren
