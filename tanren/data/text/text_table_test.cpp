#include "tanren/data/text/text_table.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/data/text/token_test_util.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::Ids;
using testing::TemporaryFolder;

const std::string kVocabulary = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt";

SourceOptions table_of(const std::string& path) {
  return {.kind = "text_table", .path = path, .context = 16, .tokenizer = kVocabulary};
}

Ids row_of(const Collated& collated, const char* field, int64_t row) {
  const at::Tensor values = collated.batch[field][row].contiguous();
  const auto* begin = values.const_data_ptr<int64_t>();
  return {begin, begin + values.numel()};
}

class TextTable : public ::testing::Test {
 protected:
  std::string error(const std::string& name, std::string_view bytes,
                    const DataInfo* train = nullptr, SourceOptions options = {}) {
    const auto made = table_of(folder_.file(name, bytes));
    options.kind = made.kind, options.path = made.path, options.tokenizer = made.tokenizer;
    if (options.context == 0) options.context = made.context;
    return testing::error_of<DataError>([&] { open_dataset(options, "data.train", train); });
  }
  std::unique_ptr<Dataset> open(const std::string& name, std::string_view bytes) {
    return open_dataset(table_of(folder_.file(name, bytes)), "data.train");
  }

  TemporaryFolder folder_;
};

TEST_F(TextTable, a_csv_that_cannot_be_read_says_file_line_and_column) {
  TANREN_EXPECT_CONTAINS(error("a.csv", ""), "a.csv:1: the file is empty");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\n"), "there are no rows");
  TANREN_EXPECT_CONTAINS(error("a.csv", "body,label\na,b\n"),
                         "a.csv:1: there is no column \"text\"; the columns are body, label; set "
                         "data.train.text to one of them");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,y\na,b\n"), "set data.train.label to one of them");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,text,label\na,b,c\n"), "two columns are called");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,0\n,1\n"),
                         "a.csv:3: column text is empty; fill it or drop the row");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,\n"), "a.csv:2: column label is empty");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\n\"a\nb\",0\na,b,c\n"),
                         "a.csv:4: has 3 cells, the header names 2");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na\n"), "is the line cut off?");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\nx,0\n\"a b\nc,1\n"),
                         "a.csv:3: nothing closes the quote of \"a b");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\n\"a\" b,1\n"),
                         "a.csv:2: a cell goes on after its closing quote with \"b,1\"");
}

TEST_F(TextTable, broken_json_lines_say_their_number) {
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"a\n"),
                         "a.jsonl:2: is no JSON (column 12)");
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "[1]\n"), "a.jsonl:1: is no JSON object");
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "{\"t\": \"a\", \"label\": 0}\n"),
                         "there is no column \"text\"; the columns are label, t;");
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "{\"text\": 5, \"label\": 0}\n"),
                         "column text is of type number, no text");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "{\"text\": " + deep + ", \"label\": 0}\n"),
                         "column text is of type array, no text");
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "{\"text\": \"a\", \"label\": " + deep + "}\n"),
                         "column label is empty");
  TANREN_EXPECT_CONTAINS(error("a.jsonl", "{\"text\": \"a\", \"label\": null}\n"),
                         "column label is empty");
  TANREN_EXPECT_CONTAINS(error("a.txt", "a"), "rename it to .csv, .tsv or .jsonl");
}

TEST_F(TextTable, labels_that_are_no_class_or_no_number_are_refused) {
  DataInfo train;
  train.outputs = 2;
  train.class_names = {"no", "yes"};
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,no\nb,maybe\n", &train),
                         "a.csv:3: label \"maybe\" is none of the classes no, yes that data.train "
                         "has; fix it");
  train.class_names.clear();
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,yes\n", &train), "no names of classes");
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,-1\n"), "label -1 is out of range");
  SourceOptions two;
  two.classes = 2;
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,2\n", nullptr, two),
                         "label 2 is out of range [0, 2)");
  SourceOptions value;
  value.label_type = "value";
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,1.5\nb,x\n", nullptr, value),
                         "a.csv:3: label \"x\" is no number");
}

TEST_F(TextTable, a_context_without_room_for_text_is_refused) {
  auto options = table_of(folder_.file("a.csv", "text,label\na,0\n"));
  options.context = 2;
  TANREN_EXPECT_CONTAINS(
      testing::error_of<ConfigError>([&] { open_dataset(options, "data.train"); }),
      "context 2 leaves no token for the text beside the 2");
}

TEST_F(TextTable, quoted_cells_hold_commas_quotes_and_line_ends) {
  const auto rows = read_text_rows(
      folder_.file("a.csv",
                   "\xEF\xBB\xBFlabel, text ,more\r\n 1 ,\"a, \"\"b\"\"\r\nc\" ,x\r\n\r\n2,d e,\n"),
      {"text", "", "label"}, "data.train");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].text, "a, \"b\"\r\nc");
  EXPECT_EQ(rows[0].label, "1");
  EXPECT_EQ(rows[0].line, 2);
  EXPECT_EQ(rows[1].text, "d e");
  EXPECT_EQ(rows[1].line, 5);
}

TEST_F(TextTable, cells_are_separated_by_what_the_header_shows_or_by_what_is_said) {
  const auto texts = [&](const std::string& bytes, const SourceOptions& options = {}) {
    const auto rows =
        read_text_rows(folder_.file("a.csv", bytes), {"text", "", "label"}, "data.train", options);
    EXPECT_EQ(rows.size(), 1u) << bytes;
    return rows.front().text + "/" + rows.front().label;
  };
  EXPECT_EQ(texts("label;text\n1;\"a; b\"\n"), "a; b/1");
  EXPECT_EQ(texts("label;text;n\r\n1;\"a\nb, c\";2\r\n"), "a\nb, c/1");
  EXPECT_EQ(texts("\xEF\xBB\xBFlabel|text\n1|a; b, c\n"), "a; b, c/1");
  EXPECT_EQ(texts("label\ttext\n1\t\"a\n"), "\"a/1");
  EXPECT_EQ(texts("label:text\n1:\"a: b\"\n", {.delimiter = ":"}), "a: b/1");
}

TEST_F(TextTable, tsv_cells_are_taken_as_they_stand) {
  const auto rows = read_text_rows(folder_.file("a.tsv", "text\tlabel\n\"a, b\t1\n"),
                                   {"text", "", "label"}, "data.train");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].text, "\"a, b");
}

TEST_F(TextTable, csv_and_json_lines_of_the_same_rows_are_the_same_samples) {
  const auto csv = open("a.csv", "text,label\nthe cat,yes\n\"a, b\",no\n");
  const auto json = open("a.jsonl",
                         "{\"text\": \"the cat\", \"label\": \"yes\"}\n\n"
                         "{\"label\": \"no\", \"text\": \"a, b\"}");
  const auto a = testing::whole_of(*csv), b = testing::whole_of(*json);
  for (const char* field : {"inputs", "attention_mask", "labels"}) {
    EXPECT_TRUE(at::equal(a.batch[field], b.batch[field])) << field;
  }
  EXPECT_EQ(csv->info().class_names, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(a.batch["labels"][0].item<int64_t>(), 1);
}

TEST_F(TextTable, samples_are_the_tokenizers_ids_padded_and_masked) {
  std::string said;
  const auto before = set_log_sink([&](std::string_view line) { said = line; });
  const auto data = open("a.csv", "text,label\na,0\na b c a b c a b c a b c a b c a b c a b,1\n");
  const auto tokenizer = load_tokenizer(kVocabulary);
  const auto both = data->collate({0, 1});
  EXPECT_EQ(both.batch["inputs"].sizes(), (std::vector<int64_t>{2, 16}));
  const TokenIds ids = tokenizer->encode_framed("a");
  Ids padded(ids.begin(), ids.end()), mask(ids.size(), 1);
  padded.resize(16, 0);
  mask.resize(16, 0);
  EXPECT_EQ(row_of(both, "inputs", 0), padded);
  EXPECT_EQ(row_of(both, "attention_mask", 0), mask);
  EXPECT_EQ(row_of(both, "attention_mask", 1), Ids(16, 1));
  EXPECT_EQ(row_of(both, "inputs", 1).back(), *tokenizer->id_of("[SEP]")) << "cut before it";
  set_log_sink(before);
  EXPECT_EQ(said, "[data.train] 1 of 2 texts are longer than context 16 and were cut");
  const auto alone = data->collate({0});
  EXPECT_EQ(alone.batch["inputs"].size(1), 8) << "as wide as its longest, in steps of 8";
  EXPECT_EQ(both.counts.at("samples"), 2);
  EXPECT_EQ(data->info().vocab_size, tokenizer->vocab_size());
  EXPECT_EQ(data->info().outputs, 2);
  EXPECT_EQ(data->info().tokenizer->at("vocab.txt"), read_file(kVocabulary));
}

TEST_F(TextTable, fixed_padding_is_as_wide_as_context) {
  auto options = table_of(folder_.file("a.csv", "text,label\na,0\n"));
  options.padding = "fixed";
  const auto data = open_dataset(options, "data.train");
  EXPECT_EQ(data->collate({0}).batch["inputs"].size(1), 16);
}

TEST_F(TextTable, pairs_have_token_types) {
  auto options = table_of(folder_.file("a.jsonl", R"({"q": "a b", "r": "c", "label": 3})"));
  options.text = "q";
  options.text_pair = "r";
  const auto data = open_dataset(options, "data.train");
  const auto tokenizer = load_tokenizer(kVocabulary);
  std::vector<int32_t> types;
  const TokenIds ids = tokenizer->encode_pair("a b", "c", 0, &types);
  const auto one = data->collate({0});
  Ids padded(ids.begin(), ids.end()), kinds(types.begin(), types.end());
  padded.resize(8, 0);
  kinds.resize(8, 0);
  EXPECT_EQ(row_of(one, "inputs", 0), padded);
  EXPECT_EQ(row_of(one, "token_types", 0), kinds);
  EXPECT_EQ(data->info().token_types, 2);
  EXPECT_EQ(data->info().outputs, 4);
}

TEST_F(TextTable, evaluation_data_take_names_and_tokenizer_from_training) {
  const auto train = open("a.csv", "text,label\nthe cat,yes\nb,no\n");
  const DataInfo info = train->info();
  auto options = table_of(folder_.file("b.csv", "text,label\nb,yes\n"));
  options.tokenizer.clear();
  const auto eval = open_dataset(options, "data.eval", &info);
  EXPECT_EQ(eval->collate({0}).batch["labels"][0].item<int64_t>(), 1);
  EXPECT_EQ(eval->info().outputs, 2);
}

// issue 21
TEST_F(TextTable, a_number_that_is_no_class_name_is_refused) {
  SourceOptions options;
  options.class_names = {"1", "2", "3"};
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,1\nb,0\n", nullptr, options),
                         "a.csv:3: label \"0\" is none of the classes 1, 2, 3; fix it");
  DataInfo train;
  train.outputs = 2;
  train.class_names = {"no", "yes"};
  TANREN_EXPECT_CONTAINS(error("a.csv", "text,label\na,no\nb,1\n", &train),
                         "a.csv:3: label \"1\" is none of the classes no, yes that data.train has");
}

TEST_F(TextTable, given_class_names_order_the_classes) {
  auto options = table_of(folder_.file("a.csv", "text,label\na,good\nb,bad\n"));
  options.class_names = {"bad", "good"};
  const auto data = open_dataset(options, "data.train");
  EXPECT_EQ(row_of(testing::whole_of(*data), "inputs", 0).size(), 8u);
  EXPECT_TRUE(at::equal(testing::whole_of(*data).batch["labels"], at::tensor({1, 0}, at::kLong)));
}

TEST_F(TextTable, many_rows_keep_their_order_on_all_cores) {
  std::string text = "text,label\n";
  for (int i = 0; i < 2000; ++i) text += "a" + std::string(i % 5, 'b') + ",1\n";
  const auto data = open("a.csv", text);
  const auto tokenizer = load_tokenizer(kVocabulary);
  for (const int64_t i : {0, 255, 256, 1024, 1999}) {
    const TokenIds ids = tokenizer->encode_framed("a" + std::string(i % 5, 'b'));
    Ids row = row_of(data->collate({i}), "inputs", 0);
    row.resize(ids.size());
    EXPECT_EQ(row, Ids(ids.begin(), ids.end())) << i;
  }
}

}  // namespace
}  // namespace tanren
