#include "tanren/run/answer_table.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

using testing::error_of;

const std::vector<Cell> kCells{{"a, \"b\""}, {"[1,2]", true}};

DataInfo named() {
  DataInfo info;
  info.outputs = 2;
  info.class_names = {"cat", "dog"};
  return info;
}

std::string row_of(const AnswerTable& table, const Answer* answer) {
  std::string text;
  table.add(text, kCells, answer);
  return text;
}

TEST(AnswerTables, refuse_a_file_of_another_kind) {
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([] { table_format("p.parquet", "predict"); }),
                         "end its name in .csv, .jsonl or .safetensors");
  EXPECT_EQ(table_format("a/p.csv", ""), TableFormat::csv);
  EXPECT_EQ(table_format("p.jsonl", ""), TableFormat::jsonl);
}

TEST(AnswerTables, have_the_own_columns_first_and_name_classes) {
  const AnswerForm form{AnswerKind::classes, false, 2};
  const Answer dog{.label = 1, .score = 0.75F, .scores = {0.25F, 0.75F}};
  const AnswerTable csv(TableFormat::csv, {"text", "n"}, form, named(), true);
  EXPECT_EQ(csv.header(), "text,n,label,score,score_cat,score_dog\n");
  EXPECT_EQ(row_of(csv, &dog), "\"a, \"\"b\"\"\",\"[1,2]\",dog,0.75,0.25,0.75\n");
  EXPECT_EQ(row_of(csv, nullptr), "\"a, \"\"b\"\"\",\"[1,2]\",,,,\n");
  const AnswerTable json(TableFormat::jsonl, {"text", "n"}, form, named(), true);
  EXPECT_EQ(json.header(), "");
  EXPECT_EQ(row_of(json, &dog),
            "{\"text\":\"a, \\\"b\\\"\",\"n\":[1,2],\"label\":\"dog\",\"score\":0.75,\"scores\":"
            "{\"cat\":0.25,\"dog\":0.75}}\n");
  EXPECT_EQ(row_of(json, nullptr),
            "{\"text\":\"a, \\\"b\\\"\",\"n\":[1,2],\"label\":null,\"score\":null,\"scores\":null}"
            "\n");
}

TEST(AnswerTables, keep_a_first_column_without_a_name) {
  const AnswerTable csv(TableFormat::csv, {"", "n"}, {AnswerKind::classes, false, 2}, named(),
                        false);
  EXPECT_EQ(csv.header(), ",n,label,score\n");
}

TEST(AnswerTables, number_classes_without_names_and_rename_what_the_input_has) {
  DataInfo info;
  info.outputs = 2;
  const AnswerTable table(TableFormat::jsonl, {"label", "n"}, {AnswerKind::classes, false, 2}, info,
                          false);
  const Answer first{.label = 0, .score = 0.5F, .scores = {0.5F, 0.5F}};
  EXPECT_EQ(row_of(table, &first),
            "{\"label\":\"a, \\\"b\\\"\",\"n\":[1,2],\"predicted_label\":0,\"score\":0.5}\n");
}

TEST(AnswerTables, write_values_and_a_row_for_each_token) {
  DataInfo info;
  info.outputs = 2;
  const AnswerTable values(TableFormat::csv, {"t", "n"}, {AnswerKind::values, false, 2}, info,
                           false);
  EXPECT_EQ(values.header(), "t,n,value_0,value_1\n");
  const Answer two{.scores = {1.5F, -1e-8F}};
  EXPECT_EQ(row_of(values, &two), "\"a, \"\"b\"\"\",\"[1,2]\",1.5,-1e-08\n");
  const AnswerTable tokens(TableFormat::csv, {"t", "n"}, {AnswerKind::tokens}, info, false);
  const Answer both{.tokens = {{7, -0.5F, 7, -0.5F}, {-1, 0, 3, -0.25F}}};
  EXPECT_EQ(tokens.header(), "t,n,position,token,log_probability,label,score\n");
  EXPECT_EQ(row_of(tokens, &both),
            "\"a, \"\"b\"\"\",\"[1,2]\",0,7,-0.5,7,-0.5\n"
            "\"a, \"\"b\"\"\",\"[1,2]\",1,,,3,-0.25\n");
}

TEST(AnswerTables, take_rows_with_columns_of_their_own_where_they_can) {
  const AnswerForm form{AnswerKind::classes, false, 2};
  const Answer cat{.label = 0, .score = 1, .scores = {1, 0}};
  std::string text;
  const AnswerTable csv(TableFormat::csv, {"text", "n"}, form, named(), false);
  csv.add(text, {"n", "text"}, {{"1", true}, {"x"}}, &cat);
  csv.add(text, {"text"}, {{"y"}}, &cat);
  EXPECT_EQ(text, "x,1,cat,1\ny,,cat,1\n");
  TANREN_EXPECT_CONTAINS(csv.problem_of({"text", "m"}), "has \"m\", which the first row lacks");
  EXPECT_EQ(csv.problem_of({"n", "text"}), "");
  text.clear();
  csv.add(text, {"m", "text"}, {{"2", true}, {"x"}}, nullptr);
  EXPECT_EQ(text, "x,,,\n") << "without what has no place";
  const AnswerTable json(TableFormat::jsonl, {"text"}, form, named(), false);
  text.clear();
  json.add(text, {"m", "text"}, {{"2", true}, {"x"}}, &cat);
  EXPECT_EQ(text, "{\"m\":2,\"text\":\"x\",\"label\":\"cat\",\"score\":1}\n");
  EXPECT_EQ(json.problem_of({"m", "text"}), "");
  TANREN_EXPECT_CONTAINS(json.problem_of({"text", "label"}),
                         "has \"label\", which predictions are written to");
  text.clear();
  json.add(text, {"text", "label"}, {{"x"}, {"1", true}}, nullptr);
  EXPECT_EQ(text, "{\"text\":\"x\",\"label\":null,\"score\":null}\n");
}

TEST(AnswerTables, write_numbers_as_they_stand_in_the_input) {
  const AnswerForm form{AnswerKind::classes, false, 2};
  const Answer cat{.label = 0, .score = 1, .scores = {1, 0}};
  std::string text;
  AnswerTable(TableFormat::csv, {"n"}, form, named(), false).add(text, {{" 5 ", true}}, &cat);
  EXPECT_EQ(text, "\" 5 \",cat,1\n");
  text.clear();
  AnswerTable(TableFormat::jsonl, {"n"}, form, named(), false).add(text, {{" 5 ", true}}, &cat);
  EXPECT_EQ(text, "{\"n\":5,\"label\":\"cat\",\"score\":1}\n");
  const std::vector<Cell> plus{{"+2", false, 2.0}};
  text.clear();
  AnswerTable(TableFormat::csv, {"n"}, form, named(), false).add(text, plus, &cat);
  EXPECT_EQ(text, "+2,cat,1\n");
  text.clear();
  AnswerTable(TableFormat::jsonl, {"n"}, form, named(), false).add(text, plus, &cat);
  EXPECT_EQ(text, "{\"n\":2,\"label\":\"cat\",\"score\":1}\n");
  const std::vector<Cell> missing{{"NA", false, NAN}};
  text.clear();
  AnswerTable(TableFormat::csv, {"n"}, form, named(), false).add(text, missing, &cat);
  EXPECT_EQ(text, "NA,cat,1\n");
  text.clear();
  AnswerTable(TableFormat::jsonl, {"n"}, form, named(), false).add(text, missing, &cat);
  EXPECT_EQ(text, "{\"n\":null,\"label\":\"cat\",\"score\":1}\n");
}

}  // namespace
}  // namespace tanren
