#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"

#include <numeric>

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

// Opens `text` as data.train. `options` gives the other keys.
std::unique_ptr<Dataset> open_text(const std::string& text, SourceOptions options = {}) {
  const TemporaryFolder folder;
  options.kind = "csv";
  options.path = folder.file("rows.csv", text);
  return open_dataset(options, "data.train");
}

std::string csv_error(const std::string& text, const SourceOptions& options = {}) {
  auto error = testing::error_of<DataError>([&] { open_text(text, options); });
  TANREN_EXPECT_CONTAINS(error, "[data.train] ");
  TANREN_EXPECT_CONTAINS(error, "rows.csv:");
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error;
}

Batch all_of(const Dataset& dataset) {
  std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset.collate(indices).batch;
}

TEST(Csv, a_missing_file_is_named) {
  const auto error = testing::error_of<InputError>(
      [] { open_dataset({.kind = "csv", .path = "/nonexistent/rows.csv"}, "data.train"); });
  TANREN_EXPECT_CONTAINS(error, "/nonexistent/rows.csv");
}

TEST(Csv, an_empty_file_and_one_without_rows_say_so) {
  TANREN_EXPECT_CONTAINS(csv_error(""), "the file is empty");
  TANREN_EXPECT_CONTAINS(csv_error("\n\n"), "the file is empty");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n"), "no rows");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n\n\n"), "no rows");
  TANREN_EXPECT_CONTAINS(csv_error("label\n1\n"), "no feature column");
}

TEST(Csv, a_missing_label_column_lists_the_columns_there_are) {
  const auto error = csv_error("target,a,b\n1,2,3\n");
  TANREN_EXPECT_CONTAINS(error, "no column \"label\"");
  TANREN_EXPECT_CONTAINS(error, "target, a, b");
  TANREN_EXPECT_CONTAINS(error, "data.train.label");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,label\n1,2,3\n"), "two columns");
  TANREN_EXPECT_CONTAINS(csv_error("label/a/b\n1/2/3\n"),
                         "set data.train.delimiter to what separates the cells");
  TANREN_EXPECT_CONTAINS(csv_error("0,1,2\n1,2,3\n"), "is there a header line");
}

TEST(Csv, a_bad_cell_is_named_by_line_and_column) {
  const auto error = csv_error("label,a,b\n0,1,2\n1,x7,3\n");
  TANREN_EXPECT_CONTAINS(error, "rows.csv:3: column a: \"x7\" is not a number");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n0,1\ncat,1\n"),
                         "\"cat\" is not a number; classes are");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\ncat,1\n", {.label_type = "value"}),
                         "\"cat\" is not a number; fix the cell");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,2x\n"), ":2: column b: \"2x\"");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,,2\n"), ":2: column a is empty");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,\n"), ":2: column b is empty");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n0,1e999\n"), "too large");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n0,1e300\n"), "too large for a 32-bit float");
}

TEST(Csv, nan_and_infinity_are_refused) {
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,nan\n"), ":2: column b is nan");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,-inf,1\n"), ":2: column a is -inf");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\nnan,1,1\n"), ":2: column label is nan");
}

TEST(Csv, lines_with_too_few_or_too_many_cells_are_refused) {
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,2\n0,1"), ":3: has 2 cells, the header names 3");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,2,3\n"), ":2: has 4 cells, the header names 3");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,2,3,4\n"), "has 5 cells");
  TANREN_EXPECT_CONTAINS(csv_error("label,a,b\n0,1,\"2\",3\n"), "more cells");
}

TEST(Csv, a_label_out_of_range_names_row_value_and_bound) {
  const auto error = csv_error("label,a\n9,1\n10,1\n", {.classes = 10});
  TANREN_EXPECT_CONTAINS(error, ":3: label 10 is out of range [0, 10)");
  TANREN_EXPECT_CONTAINS(error, "data.train.classes");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n-1,1\n"), ":2: label -1 is out of range");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n1e30,1\n"), ":2: label 1e+30 is out of range");
}

TEST(Csv, a_label_that_is_no_integer_is_no_class) {
  const auto error = csv_error("label,a\n0.5,1\n");
  TANREN_EXPECT_CONTAINS(error, ":2: label 0.5 is no class");
  TANREN_EXPECT_CONTAINS(error, "label_type");
}

TEST(Csv, a_shape_that_does_not_hold_the_features_is_refused) {
  const auto error = csv_error("label,a,b,c\n0,1,2,3\n", {.shape = {2, 2}});
  TANREN_EXPECT_CONTAINS(error, "3 feature columns");
  TANREN_EXPECT_CONTAINS(error, "[2, 2] asks for 4");
  TANREN_EXPECT_CONTAINS(csv_error("label,a\n0,1\n", {.shape = {-1, -1}}), "asks for 1");
}

TEST(Csv, features_are_scaled_shifted_and_shaped_and_labels_are_classes) {
  const auto dataset = open_text("a,label,b,c,d\n0,3,4,8,16\n16,0,8,4,-2.5e0\n",
                                 {.shape = {1, 2, 2}, .scale = 0.0625, .offset = -0.5});
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->info().outputs, 4);
  EXPECT_TRUE(dataset->info().class_labels);
  EXPECT_EQ(dataset->info().input_shape, (std::vector<int64_t>{1, 2, 2}));
  const Batch batch = all_of(*dataset);
  const auto expected = at::tensor({-0.5f, -0.25f, 0.f, 0.5f, 0.5f, 0.f, -0.25f, -0.65625f});
  EXPECT_TRUE(at::equal(batch["inputs"], expected.view({2, 1, 2, 2})));
  EXPECT_TRUE(at::equal(batch["labels"], at::tensor({3, 0}, at::kLong)));
}

TEST(Csv, given_classes_win_over_the_largest_label) {
  EXPECT_EQ(open_text("label,a\n1,1\n", {.classes = 10})->info().outputs, 10);
}

TEST(Csv, values_are_floating_labels) {
  const auto dataset = open_text("label,a\n0.25,1\n-3,2\n", {.label_type = "value"});
  EXPECT_FALSE(dataset->info().class_labels);
  EXPECT_EQ(dataset->info().outputs, 1);
  EXPECT_TRUE(at::equal(all_of(*dataset)["labels"], at::tensor({0.25f, -3.f})));
}

TEST(Csv, line_ends_quotes_blanks_and_a_byte_order_mark_are_taken_as_people_write_them) {
  const auto plain = all_of(*open_text("label,a,b\n1,2,3\n0,5,6\n"));
  for (const char* text :
       {"label,a,b\r\n1,2,3\r\n0,5,6\r\n", "label,a,b\n1,2,3\n0,5,6",
        "label,a,b\n\n1,2,3\n\n0,5,6\n\n", "\"label\",\"a\",\"b\"\n\"1\",2,\"3\"\n0,\" 5 \",6\n",
        " label , a , b \n 1 ,\t2, 3 \n0,+5,6 \n", "\xEF\xBB\xBFlabel,a,b\n1,2,3\n0,5,6\n",
        "label,\"a, \"\"x\"\"\",b\n1,2,3\n0,5,6\n"}) {
    const auto batch = all_of(*open_text(text));
    EXPECT_TRUE(at::equal(batch["inputs"], plain["inputs"])) << text;
    EXPECT_TRUE(at::equal(batch["labels"], plain["labels"])) << text;
  }
}

}  // namespace
}  // namespace tanren
