#include "tanren/predict/rows.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tanren/predict/predict_file.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class RowsTest : public ::testing::Test {
 protected:
  RowsTest() {
    table_.data.eval.kind = "csv";
    info_.feature_names = {"a", "b"};
    info_.input_shape = {2};
    texts_.data.eval.kind = "text_table";
  }

  std::vector<Row> rows_of(const RunConfig& config, const std::string& name,
                           const std::string& bytes) {
    const auto rows =
        open_rows(folder_.file(name, bytes), config, info_, kinds_, AnswerKind::classes);
    columns_ = rows->columns();
    std::vector<Row> all;
    for (Row row; rows->next(row);) all.push_back(row);
    print_ = rows->print();
    return all;
  }
  std::string error(const RunConfig& config, const std::string& name, const std::string& bytes) {
    return error_of<InputError>([&] { rows_of(config, name, bytes); });
  }

  testing::TemporaryFolder folder_;
  RunConfig table_, texts_;
  DataInfo info_;
  DatasetRegistry kinds_;
  std::vector<std::string> columns_;
  uint64_t print_ = 0;
};

TEST_F(RowsTest, are_refused_as_a_whole_with_file_and_line) {
  TANREN_EXPECT_CONTAINS(error(table_, "x.csv", ""), "x.csv is empty");
  TANREN_EXPECT_CONTAINS(error(table_, "x.csv", "\n\na,c\n1,2\n"),
                         "x.csv:3: there is no column \"b\"; the model was trained on a, b, and "
                         "the file has a, c");
  TANREN_EXPECT_CONTAINS(error(table_, "x.csv", "a,b,\"c\n1,2,3\n"), "x.csv:1: nothing closes");
  TANREN_EXPECT_CONTAINS(error(texts_, "x.csv", "body\nx\n"), "set data.eval.text to the column");
  texts_.data.eval.text_pair = "other";
  TANREN_EXPECT_CONTAINS(error(texts_, "x.txt", "x\n"), "reads pairs of texts");
  texts_.data.eval.kind = "synthetic";
  TANREN_EXPECT_CONTAINS(error(texts_, "x.txt", "x\n"), "of kind synthetic");
}

TEST_F(RowsTest, of_many_columns_are_told_by_the_first_of_them) {
  auto table = std::make_shared<TableEncoding>();
  std::string header, others, row;
  info_.feature_names.clear();
  for (int i = 0; i < 1000; ++i) {
    const std::string end = i < 999 ? "," : "\n";
    info_.feature_names.push_back("column_" + std::to_string(i));
    table->columns.push_back(
        {.name = info_.feature_names.back(), .is_category = true, .values = {"u"}});
    header += info_.feature_names.back() + end;
    others += "other_" + std::to_string(i) + end;
    row += "w" + end;
  }
  const std::string refused = error(table_, "x.csv", others);
  TANREN_EXPECT_CONTAINS(refused, "trained on column_0, column_1,");
  TANREN_EXPECT_CONTAINS(refused, "the file has other_0, other_1,");
  EXPECT_LT(refused.size(), 1500u) << refused;
  info_.table = table;
  info_.input_shape = {1000};
  const auto rows =
      open_rows(folder_.file("y.csv", header + row), table_, info_, kinds_, AnswerKind::classes);
  for (Row each; rows->next(each);) EXPECT_EQ(each.broken, "");
  TANREN_EXPECT_CONTAINS(rows->unknown_text(), "column_0 1, column_1 1,");
  EXPECT_LT(rows->unknown_text().size(), 1500u) << rows->unknown_text();
}

TEST_F(RowsTest, of_a_table_are_refused_where_training_named_no_columns_or_two_alike) {
  info_.feature_names.clear();
  for (const std::string name : {"x.csv", "x.jsonl"}) {
    const std::string bytes = name == "x.csv" ? "label,a\n0,1\n" : "{\"label\": 0, \"a\": 1}\n";
    TANREN_EXPECT_CONTAINS(error(table_, name, bytes),
                           "name no columns, so that those of a table cannot be told; give it "
                           "tensors (--set data.eval.kind=tensors)");
  }
  for (const char* twice : {"a", " a"}) {
    info_.feature_names = {"a", twice};
    TANREN_EXPECT_CONTAINS(error(table_, "x.csv", "a,b\n1,2\n"), "trained on two columns");
  }
}

TEST_F(RowsTest, find_columns_whose_names_training_kept_blanks_around) {
  info_.feature_names = {" a", "b "};
  auto rows = rows_of(table_, "x.csv", "b,a\n1,2\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].sample.numbers, (std::vector<double>{2, 1}));
  rows = rows_of(table_, "x.jsonl", "{\"b \": 1, \"a\": 2}\n{\"a\": 3, \" a\": 4, \"b\": 5}\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.numbers, (std::vector<double>{2, 1}));
  EXPECT_EQ(rows[1].sample.numbers, (std::vector<double>{4, 5})) << "the name itself goes first";
}

TEST_F(RowsTest, of_a_table_have_its_columns_and_numbers_by_name) {
  const auto rows = rows_of(table_, "x.csv", "id,b, a\r\n\"x,1\",+2, 1.50\r\n\r\n007,-3e1,4\r\n");
  EXPECT_EQ(columns_, (std::vector<std::string>{"id", "b", "a"}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.numbers, (std::vector<double>{1.5, 2}));
  EXPECT_EQ(rows[1].sample.numbers, (std::vector<double>{4, -30}));
  EXPECT_EQ(rows[0].cells[0].text, "x,1");
  EXPECT_FALSE(rows[1].cells[0].is_json) << "007 is a name";
  EXPECT_FALSE(rows[0].cells[1].is_json) << "JSON has no +2";
  EXPECT_EQ(rows[0].cells[1].number, 2);
  EXPECT_TRUE(rows[0].cells[2].is_json);
  EXPECT_EQ(rows[0].cells[2].text, " 1.50") << "to the letter";
  TANREN_EXPECT_CONTAINS(rows[1].place, "x.csv:4");
}

TEST_F(RowsTest, that_are_broken_say_why_and_the_others_go_on) {
  const auto rows = rows_of(table_, "x.csv", "a,b\n1,x\n1\n1,2,3\n,1\n1,inf\n\"1\"x,2\n1,2\n");
  const char* why[] = {"column b: \"x\" is not a number",
                       "has 1 cell, the header names 2",
                       "has 3 cells",
                       "column a is empty",
                       "column b is inf",
                       "goes on after its closing quote",
                       ""};
  ASSERT_EQ(rows.size(), std::size(why));
  for (size_t i = 0; i < rows.size(); ++i) {
    TANREN_EXPECT_CONTAINS(rows[i].broken, why[i]);
    EXPECT_EQ(rows[i].broken.empty(), *why[i] == '\0');
    EXPECT_EQ(rows[i].cells.size(), 2u);
  }
}

TEST_F(RowsTest, of_json_lines_keep_every_value_as_it_is) {
  const auto rows = rows_of(texts_, "x.jsonl",
                            "{\"n\": [1, {\"m\": null}], \"text\": \"a\\nb\"}\n\n[1]\n{\"text\": "
                            "3}\n{\"other\": 1}\nnot\n{\"text\": \"c\", \"more\": 1.50}\n" +
                                std::string("{\"text\": \"x\", \"n\": ") +
                                std::string(100000, '[') + std::string(100000, ']') + "}\n");
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[0].sample.text, "a\nb");
  EXPECT_EQ(rows[0].cells[0].text, "[1,{\"m\":null}]");
  TANREN_EXPECT_CONTAINS(rows[1].broken, "is no JSON object");
  TANREN_EXPECT_CONTAINS(rows[1].place, "x.jsonl:3");
  TANREN_EXPECT_CONTAINS(rows[2].broken, "column text is no text");
  TANREN_EXPECT_CONTAINS(rows[3].broken, "there is no \"text\"; the row has other");
  TANREN_EXPECT_CONTAINS(rows[4].broken, "is no JSON; fix the line");
  EXPECT_EQ(rows[5].names, (std::vector<std::string>{"text", "more"}));
  TANREN_EXPECT_CONTAINS(rows[6].broken, "nests too deeply");
}

// The time to read an object grows with the square of its keys: this one would take hours.
TEST_F(RowsTest, of_json_lines_with_too_many_keys_are_told_at_once) {
  const auto object = [](int keys) {
    std::string text = "{\"text\": \"a\"";
    for (int i = 1; i < keys; ++i) text += ",\"k" + std::to_string(i) + "\":\"x:y\"";
    return text + "}";
  };
  const auto start = std::chrono::steady_clock::now();
  const auto rows = rows_of(texts_, "x.jsonl",
                            object(100) + "\n" + object(1'000'000) + "\n{\"text\": \"b\", " +
                                "\"n\": [" + object(1'000'000) + "]}\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].names.size(), 100u);
  for (const size_t i : {1, 2}) {
    TANREN_EXPECT_CONTAINS(rows[i].broken, "has an object of more than 20000 keys; write the rows");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(RowsTest, of_texts_may_go_over_several_lines_in_a_csv_only) {
  auto rows = rows_of(texts_, "x.csv", "text,n\n\"a\nb, \"\"c\"\"\",1\nd,2\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.text, "a\nb, \"c\"");
  TANREN_EXPECT_CONTAINS(rows[1].place, "x.csv:4");
  rows = rows_of(texts_, "x.tsv", "n\ttext\n1\t\"a, b\n2\t \n");
  EXPECT_EQ(rows[0].sample.text, "\"a, b");
  TANREN_EXPECT_CONTAINS(rows[1].broken, "column text is empty");
  rows = rows_of(texts_, "lines", "a, \"b\n\nc");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].sample.text, "a, \"b");
  TANREN_EXPECT_CONTAINS(rows[1].broken, "the line is empty");
}

TEST_F(RowsTest, keep_what_their_own_columns_say_to_the_letter) {
  auto rows =
      rows_of(texts_, "x.jsonl",
              "{\"id\": 123456789012345678901234567890, \"x\" : 1.50,\"text\":\"a } , : b\", "
              "\"l\": [1.0, \"q\\\" :\" , {\"k\": 2e0}], \"n\": null}\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].names, (std::vector<std::string>{"id", "x", "text", "l", "n"}));
  EXPECT_EQ(rows[0].cells[0].text, "123456789012345678901234567890");
  EXPECT_EQ(rows[0].cells[1].text, "1.50");
  EXPECT_EQ(rows[0].cells[2].text, "a } , : b");
  EXPECT_EQ(rows[0].cells[3].text, "[1.0,\"q\\\" :\",{\"k\":2e0}]");
  EXPECT_EQ(rows[0].cells[4].text, "null");
  rows = rows_of(texts_, "x.csv", "text,n\r\n\"a\r\nb\nc\",1\r\nd,2\r\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.text, "a\r\nb\nc") << "line ends inside quotes are the text's";
  EXPECT_EQ(rows[1].cells[1].text, "2");
}

TEST_F(RowsTest, of_a_tsv_may_be_blank_but_for_tabs) {
  const auto rows = rows_of(texts_, "x.tsv", "n\ttext\n1\ta\n\n\t\n2\tb\n");
  ASSERT_EQ(rows.size(), 3u);
  TANREN_EXPECT_CONTAINS(rows[1].broken, "column text is empty");
  TANREN_EXPECT_CONTAINS(rows[1].place, "x.tsv:4");
}

TEST_F(RowsTest,
       of_json_lines_have_the_columns_of_the_first_sound_one_where_broken_ones_are_skipped) {
  texts_.predict.broken = "skip";
  const auto rows = rows_of(texts_, "x.jsonl", "not\n[]\n{\"id\": 1, \"text\": \"a\"}\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(columns_, (std::vector<std::string>{"id", "text"}));
  TANREN_EXPECT_CONTAINS(rows[0].broken, "is no JSON");
  TANREN_EXPECT_CONTAINS(rows[1].broken, "is no JSON object");
  EXPECT_EQ(rows[2].sample.text, "a");
}

TEST_F(RowsTest, are_read_by_their_ending_in_any_case_and_other_tables_are_refused) {
  auto rows = rows_of(texts_, "x.CSV", "n,text\n1,a\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].sample.text, "a");
  rows = rows_of(texts_, "x.TSV", "n\ttext\n1\ta\n");
  ASSERT_EQ(rows.size(), 1u);
  rows = rows_of(texts_, "x.Jsonl", "{\"text\": \"a\"}\n");
  ASSERT_EQ(rows.size(), 1u);
  for (const std::string name : {"x.json", "x.tab", "x.parquet", "x.csv.gz", "x.XLSX"}) {
    TANREN_EXPECT_CONTAINS(error(texts_, name, "text\na\n"),
                           "are not read; write it as .csv, .tsv or .jsonl");
  }
}

TEST_F(RowsTest, with_a_quote_that_nothing_closes_end_soon) {
  std::string text = "a,b\n1,\"";
  for (int i = 0; i < 4'000'000; ++i) text += "\n1,2";  // 16 MB
  TANREN_EXPECT_CONTAINS(error(table_, "x.csv", text), "x.csv:2: nothing closes a quote");
}

TEST_F(RowsTest, are_separated_by_what_their_header_shows) {
  for (const std::string text : {"b;id;a\n2;\"x;1\";1.5\n", "b|id|a\r\n2|\"x;1\"|1.5\r\n",
                                 "\xEF\xBB\xBF"
                                 "b,id,a\n2,x;1,1.5\n",
                                 "b\tid\ta\n2\tx;1\t1.5\n"}) {
    const auto rows = rows_of(table_, "x.csv", text);
    ASSERT_EQ(rows.size(), 1u) << text;
    EXPECT_EQ(rows[0].sample.numbers, (std::vector<double>{1.5, 2})) << text;
    EXPECT_EQ(rows[0].cells[1].text, "x;1") << text;
  }
  auto rows = rows_of(texts_, "x.csv", "n;text\n1;\"a; b\"\n");
  EXPECT_EQ(rows[0].sample.text, "a; b");
  rows = rows_of(texts_, "x.csv", "text\na; b\n");
  EXPECT_EQ(rows[0].sample.text, "a; b") << "one column";
  rows = rows_of(texts_, "x.tsv", "text\na, b\n");
  EXPECT_EQ(rows[0].sample.text, "a, b") << "one column";
  table_.data.eval.delimiter = ":";
  EXPECT_EQ(rows_of(table_, "x.csv", "a:b\n1:2\n")[0].sample.numbers, (std::vector<double>{1, 2}));
  table_.data.eval.delimiter = "";
  TANREN_EXPECT_CONTAINS(error(table_, "x.csv", "a:b\n1:2\n"), "or set data.eval.delimiter");
}

TEST_F(RowsTest, have_decimal_commas_if_it_is_said) {
  table_.data.eval.decimal = ",";
  const auto rows = rows_of(table_, "x.csv", "a;b\n1,5;-2\n1.5;2\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].sample.numbers, (std::vector<double>{1.5, -2}));
  TANREN_EXPECT_CONTAINS(rows[1].broken, "column a: \"1.5\" is not a number");
  const auto json = rows_of(table_, "x.jsonl", "{\"a\": 1.5, \"b\": \"2,5\"}\n");
  EXPECT_EQ(json[0].sample.numbers, (std::vector<double>{1.5, 2.5})) << "JSON has points";
}

TEST_F(RowsTest, of_an_encoded_table_are_its_inputs) {
  auto table = std::make_shared<TableEncoding>();
  table->columns.push_back({.name = "a", .values = {}, .mean = 2, .deviation = 4, .fill = 6});
  table->columns.push_back({.name = "b", .is_category = true, .values = {"u", "v"}});
  table->standardizes = table->fills = true;
  info_.table = table;
  const auto rows = rows_of(table_, "x.csv", "b,a\nv,10\nw,NA\nu,x\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].sample.inputs, (std::vector<float>{2, 0, 1}));
  EXPECT_EQ(rows[1].sample.inputs, (std::vector<float>{1, 0, 0})) << "w is unknown, a is missing";
  TANREN_EXPECT_CONTAINS(rows[2].broken, "column a: \"x\" is not a number");
  EXPECT_TRUE(rows[0].cells[1].is_json);
  EXPECT_FALSE(rows[0].cells[0].is_json);
}

// Issue 26: they were none of the categories, silently.
TEST_F(RowsTest, of_json_values_are_the_categories_of_their_value) {
  auto table = std::make_shared<TableEncoding>();
  table->columns.push_back(
      {.name = "a", .is_category = true, .values = {"1.0", "2", "False", "TRUE"}});
  table->columns.push_back({.name = "b", .is_category = true, .values = {"u"}});
  table->fills = true;
  info_.table = table;
  const std::string file = "x.jsonl", b = ", \"b\": \"u\"}\n";
  const auto rows =
      rows_of(table_, file,
              "{\"a\": true" + b + "{\"a\": false" + b + "{\"a\": 1" + b + "{\"a\": 2.0" + b +
                  "{\"a\": null" + b + "{\"a\": \"2.0\"" + b + "{\"a\": 3" + b + "{\"a\": [1]" + b);
  const std::vector<std::vector<float>> expected{{0, 0, 0, 1, 1}, {0, 0, 1, 0, 1}, {1, 0, 0, 0, 1},
                                                 {0, 1, 0, 0, 1}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}};
  ASSERT_EQ(rows.size(), 8u);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(rows[i].sample.inputs, expected[i]) << i;
    EXPECT_EQ(rows[i].broken, "") << i;
  }
  TANREN_EXPECT_CONTAINS(rows[6].broken, "column a: 3 is no text, and no value that training had");
  TANREN_EXPECT_CONTAINS(rows[7].broken, "column a: [1] is no text");
}

// Issue 26: two ids of one double were one category.
TEST_F(RowsTest, of_json_numbers_are_the_categories_of_their_exact_value) {
  auto table = std::make_shared<TableEncoding>();
  table->columns.push_back({.name = "a",
                            .is_category = true,
                            .values = {"-0.0", "0.25", "007", "1e3", "9007199254740992"}});
  table->columns.push_back({.name = "b", .values = {}});
  info_.table = table;
  const std::vector<std::string> values{
      "0", "2.50e-1", "7", "1000.0", "9007199254740992.0", "9007199254740993"};
  std::string text;
  for (const std::string& value : values) text += "{\"a\": " + value + ", \"b\": 1}\n";
  const auto rows = rows_of(table_, "x.jsonl", text);
  ASSERT_EQ(rows.size(), values.size());
  for (size_t i = 0; i < 5; ++i) {
    std::vector<float> expected(6);
    expected[i] = expected[5] = 1;
    EXPECT_EQ(rows[i].sample.inputs, expected) << values[i] << ": " << rows[i].broken;
  }
  TANREN_EXPECT_CONTAINS(rows[5].broken, "9007199254740993 is no text, and no value");
}

// Issue 26: NA was a text among numbers, and so were numbers of rows that are broken.
TEST_F(RowsTest, have_numbers_or_null_in_a_column_of_numbers_also_where_they_are_broken) {
  auto table = std::make_shared<TableEncoding>();
  table->columns.push_back({.name = "a", .values = {}});
  table->columns.push_back({.name = "b", .values = {}});
  table->fills = true;
  info_.table = table;
  const auto rows = rows_of(table_, "x.csv", "a,b\nNA,1\nx,+2\n3\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].broken, "");
  ASSERT_TRUE(rows[0].cells[0].number.has_value());
  EXPECT_TRUE(std::isnan(*rows[0].cells[0].number));
  EXPECT_EQ(rows[0].cells[0].text, "NA") << "to the letter in a CSV";
  EXPECT_NE(rows[1].broken, "");
  EXPECT_FALSE(rows[1].cells[0].is_json || rows[1].cells[0].number) << "x is no number";
  EXPECT_EQ(rows[1].cells[1].number, 2);
  TANREN_EXPECT_CONTAINS(rows[2].broken, "has 1 cell,");
  EXPECT_TRUE(rows[2].cells[0].is_json);
  EXPECT_TRUE(rows[2].cells[1].number.has_value());
}

TEST_F(RowsTest, count_the_texts_of_categories_that_training_did_not_have) {
  auto table = std::make_shared<TableEncoding>();
  table->columns.push_back({.name = "a", .values = {}});
  table->columns.push_back({.name = "b", .is_category = true, .values = {"u", "v"}});
  table->fills = true;
  info_.table = table;
  const auto path = folder_.file("x.csv", "a,b\n1,u\n2,w\n0,x\n4,\n");
  const auto rows = open_rows(path, table_, info_, kinds_, AnswerKind::classes);
  EXPECT_EQ(rows->unknown_text(), "");
  for (Row row; rows->next(row);) EXPECT_EQ(row.broken, "");
  EXPECT_EQ(rows->unknown_text(), "b 2");
}

// Issue 26: all of them were kept in memory. Ranks check a stop together, so not here.
TEST_F(RowsTest, of_json_lines_without_a_sound_one_end_soon) {
  texts_.predict.broken = "skip";
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "x\n";
  TANREN_EXPECT_CONTAINS(error(texts_, "x.jsonl", text), "rows is sound (is no JSON; fix the line");
  const std::atomic<bool> stop = true;
  EXPECT_THROW(open_rows(folder_.path() / "x.jsonl", texts_, info_, kinds_, AnswerKind::classes,
                         {.stop = &stop, .out = {}}),
               DataError);
}

TEST_F(RowsTest, of_tensors_have_no_labels_that_could_be_wrong) {
  TensorMap tensors;
  tensors.set("inputs", at::zeros({3, 2}));
  tensors.set("labels", at::tensor({-1, 7, 0}, at::kLong));
  write_safetensors(folder_.path() / "x.safetensors", tensors);
  RunConfig config;
  config.data.eval.kind = "tensors";
  config.data.eval.classes = 2;
  config.data.eval.only_classes = {"0"};
  const auto rows =
      open_rows(folder_.path() / "x.safetensors", config, info_, kinds_, AnswerKind::classes);
  int count = 0;
  for (Row row; rows->next(row); ++count) EXPECT_FALSE(row.sample.tensors.contains("labels"));
  EXPECT_EQ(count, 3);
}

// Issue 26: tokens 0 without a target at the end of the stream were taken for padding.
TEST_F(RowsTest, of_tokens_are_as_long_as_their_window) {
  const std::vector<uint16_t> tokens{5, 6, 7, 8, 9, 0, 3};
  folder_.file("x.bin", {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()});
  RunConfig config;
  config.data.eval.kind = "tokens";
  config.data.eval.dtype = "uint16";
  config.data.eval.vocab_size = 10;
  config.data.eval.context = 4;
  config.data.eval.document_end = 0;
  info_ = {.input_shape = {4}, .outputs = 10, .vocab_size = 10};
  const auto rows = open_rows(folder_.path() / "x.bin", config, info_, kinds_, AnswerKind::tokens);
  std::vector<int64_t> positions;
  for (Row row; rows->next(row);) positions.push_back(row.positions);
  EXPECT_EQ(positions, (std::vector<int64_t>{4, 2}));
}

TEST_F(RowsTest, of_images_are_not_what_is_written_among_them) {
  RunConfig config;
  config.data.eval.kind = "images";
  folder_.file("a.png", "x");
  const fs::path out = folder_.file("p.csv", "x");
  folder_.file("p.csv.partial", "x");
  const auto rows = open_rows(folder_.path(), config, info_, kinds_, AnswerKind::classes,
                              {.stop = nullptr, .out = out});
  int count = 0;
  for (Row row; rows->next(row); ++count) EXPECT_EQ(row.cells[0].text, "a.png");
  EXPECT_EQ(count, 1);
  EXPECT_THROW(open_rows(folder_.path(), config, info_, kinds_, AnswerKind::classes), DataError);
}

TEST_F(RowsTest, of_images_are_others_than_before_where_a_file_was_changed) {
  RunConfig config;
  config.data.eval.kind = "images";
  const fs::path image = folder_.file("a.png", "x");
  const auto begun = [&] {
    const auto rows = open_rows(folder_.path(), config, info_, kinds_, AnswerKind::classes);
    Row row;
    EXPECT_TRUE(rows->next(row));
    print_ = rows->print();
    return rows->begun();
  };
  const uint64_t one = begun(), print = print_;
  EXPECT_EQ(begun(), one);
  fs::last_write_time(image, fs::last_write_time(image) + std::chrono::nanoseconds(1000));
  EXPECT_NE(begun(), one);
  EXPECT_EQ(print_, print) << "which ranks compare";
}

// Six samples, each with one row more than the one before it.
class GrowingSamples : public Dataset {
 public:
  int64_t size() const override { return 6; }
  DataInfo info() const override { return {.input_shape = {kAnySize, 2}, .outputs = 2}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated made;
    made.batch.fields.set("inputs", at::zeros({1, indices[0] + 1, 2}));
    made.batch.ids = ids_of(indices);
    return made;
  }
};

TEST_F(RowsTest, whose_sizes_vary_show_a_large_one_to_dry_runs) {
  kinds_.add("growing", [](const SourceOptions&, const std::string&, const DataInfo*) {
    return std::make_unique<GrowingSamples>();
  });
  RunConfig config;
  config.data.eval.kind = "growing";
  info_.input_shape = {kAnySize, 2};
  const auto rows = open_rows(folder_.path(), config, info_, kinds_, AnswerKind::classes);
  Row row;
  ASSERT_TRUE(rows->next(row));
  EXPECT_EQ(row.sample.tensors.at("inputs").size(1), 1);
  EXPECT_EQ(rows->largest(row.sample).tensors.at("inputs").size(1), 6);
  ASSERT_TRUE(rows->next(row));
  EXPECT_EQ(row.sample.tensors.at("inputs").size(1), 2) << "no row was taken";
}

// The first of them cannot be read.
class HoledSamples : public Dataset {
 public:
  int64_t size() const override { return 3; }
  DataInfo info() const override { return {.input_shape = {2}}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated made;
    const int64_t rows = indices[0] == 0 ? 0 : 1;
    made.batch.fields.set("inputs", at::full({rows, 2}, static_cast<double>(indices[0])));
    made.batch.ids = ids_of(indices).narrow(0, 0, rows);
    return made;
  }
};

// Issue 26: a dry run was made of the sample that could not be read.
TEST_F(RowsTest, whose_first_could_not_be_read_show_another_one_to_dry_runs) {
  kinds_.add("holed", [](const SourceOptions&, const std::string&, const DataInfo*) {
    return std::make_unique<HoledSamples>();
  });
  RunConfig config;
  config.data.eval.kind = "holed";
  const auto rows = open_rows(folder_.path(), config, info_, kinds_, AnswerKind::classes);
  Row row;
  ASSERT_TRUE(rows->next(row));
  EXPECT_EQ(row.broken, "could not be read");
  const Sample shown = rows->largest(row.sample);
  EXPECT_EQ(shown.tensors.at("inputs").size(0), 1);
  ASSERT_TRUE(rows->next(row));
  EXPECT_EQ(rows->largest(row.sample).tensors.at("inputs")[0][0].item<double>(), 1);
}

// Issue 26: a plain file below /dev passed for a pipe.
TEST_F(RowsTest, of_plain_files_below_dev_go_into_files) {
  EXPECT_EQ(predictions_file_of("/dev/shm/new.csv"), "/dev/shm/new.predictions.csv");
  for (const char* source : {"-", "/dev/stdin", "/dev/fd/63", "/dev/null"}) {
    EXPECT_EQ(predictions_file_of(source), "") << source;
  }
}

TEST_F(RowsTest, agree_in_their_print_only_if_they_are_the_same) {
  rows_of(table_, "x.csv", "a,b\n1,2\n3,4\n");
  const uint64_t one = print_;
  rows_of(table_, "y.csv", "a,b\n1,2\n3,4");
  EXPECT_EQ(print_, one);
  rows_of(table_, "x.csv", "a,b\n1,2\n3,5\n");
  EXPECT_NE(print_, one);
  rows_of(table_, "x.csv", "a,b\n1,2\n");
  EXPECT_NE(print_, one);
}

}  // namespace
}  // namespace tanren
