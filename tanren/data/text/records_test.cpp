#include "tanren/data/text/records.h"

#include "tanren/base/testing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tanren {
namespace {

using Texts = std::vector<std::string>;

Texts cells_of(const std::string& record, char delimiter, std::string* problem = nullptr) {
  Cells cells;
  EXPECT_TRUE(cells.split(record, delimiter)) << record;
  if (problem != nullptr) *problem = cells.problem();
  Texts texts;
  for (const std::string_view cell : cells) texts.emplace_back(cell);
  return texts;
}

TEST(OpenQuotes, are_open_where_a_record_cannot_be_split_yet) {
  for (const std::string record : {"a,\"b", "\"a\"\"", "a, \"b\"\"", "a,b\"", "\"a\" ,b",
                                   "\"\",\"x\ny", "\"a\"b,\"c", "a", ""}) {
    for (const char delimiter : {',', ';'}) {
      std::string own = record;
      for (char& c : own) c = c == ',' ? delimiter : c;
      Cells cells;
      OpenQuote quote(delimiter);
      EXPECT_EQ(quote.at_end_of(own), !cells.split(own, delimiter)) << own;
      // Byte by byte, the result is the same.
      OpenQuote slow(delimiter);
      bool open = false;
      for (size_t size = 0; size <= own.size(); ++size) open = slow.at_end_of(own.substr(0, size));
      EXPECT_EQ(open, !cells.split(own, delimiter)) << own;
    }
  }
}

TEST(CellsOfRecords, are_taken_as_rfc_4180_has_them_with_any_delimiter) {
  std::string problem;
  EXPECT_EQ(cells_of("a,\"b, \"\"c\"\"\" ,,d e", ',', &problem),
            (Texts{"a", "b, \"c\"", "", "d e"}));
  EXPECT_EQ(problem, "");
  EXPECT_EQ(cells_of("a;\"b; \"\"c\"\"\" ;;d, e", ';'), (Texts{"a", "b; \"c\"", "", "d, e"}));
  EXPECT_EQ(cells_of("a|\"b|c\"", '|'), (Texts{"a", "b|c"}));
  EXPECT_EQ(cells_of("a,", ','), (Texts{"a", ""}));
  EXPECT_EQ(cells_of("\"\",\"x\ny\"", ','), (Texts{"", "x\ny"}));
  EXPECT_EQ(cells_of("5\" nail,\"a\tb", '\t'), (Texts{"5\" nail,\"a", "b"}));
  EXPECT_EQ(cells_of("\"a\"\"\",\"\"\"b\",\"c\"", ','), (Texts{"a\"", "\"b", "c"}));
  Cells open;
  EXPECT_FALSE(open.split("a,\"b", ','));
  EXPECT_EQ(cells_of("\"a\"b,c", ',', &problem), (Texts{"a", "c"}));
  TANREN_EXPECT_CONTAINS(problem, "a cell goes on after its closing quote with \"b,c\"");
}

class RecordsTest : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
};

TEST_F(RecordsTest, may_go_over_lines_and_say_where_they_began) {
  LineReader lines(folder_.file("x.csv", "a,b\n\n \n\"x\r\ny\",1\r\nlast,2"), "data", "utf-8");
  RecordReader records(lines, /*skips_blank=*/true);
  std::string record;
  const std::pair<std::string, int64_t> expected[] = {
      {"a,b", 1}, {"\"x\r\ny\",1", 4}, {"last,2", 6}};
  for (const auto& [text, line] : expected) {
    ASSERT_EQ(records.next(record, ','), RecordReader::Found::record);
    EXPECT_EQ(record, text);
    EXPECT_EQ(records.line(), line);
  }
  EXPECT_EQ(records.next(record, ','), RecordReader::Found::end);
  LineReader again(folder_.path() / "x.csv", "data", "utf-8");
  RecordReader strict(again, /*skips_blank=*/false);
  ASSERT_EQ(strict.next(record, ','), RecordReader::Found::record);
  ASSERT_EQ(strict.next(record, ','), RecordReader::Found::record);
  EXPECT_EQ(record, " ") << "blanks are a text";
}

TEST_F(RecordsTest, with_a_quote_that_nothing_closes_say_where_it_is) {
  LineReader lines(folder_.file("x.csv", "a\n\"b\nc\",\"d\ne"), "data", "utf-8");
  RecordReader records(lines, /*skips_blank=*/true);
  std::string record;
  ASSERT_EQ(records.next(record, ','), RecordReader::Found::record);
  EXPECT_EQ(records.next(record, ','), RecordReader::Found::open_quote);
  EXPECT_EQ(records.line(), 2);
  EXPECT_EQ(records.quote_line(), 3);
  EXPECT_EQ(record.substr(records.quote_place(), 2), "\"d");
}

TEST_F(RecordsTest, of_one_line_at_most_end_soon) {
  LineReader lines(folder_.file("x.csv", "\"a\nb\nc\""), "data", "utf-8");
  RecordReader records(lines, /*skips_blank=*/true, /*longest=*/3);
  std::string record;
  EXPECT_EQ(records.next(record, ','), RecordReader::Found::open_quote);
}

TEST(Delimiters, are_found_by_the_columns_that_are_wanted) {
  const auto found = [](const std::string& header, const Texts& wanted, bool tabs = false) {
    return delimiter_of(header, {}, tabs, wanted);
  };
  EXPECT_EQ(found("label,a;b,c;d;e", {"label"}), ',') << "today's files are read as before";
  EXPECT_EQ(found("Name, first;Age;label", {"label"}), ';');
  EXPECT_EQ(found("a|label", {"label"}), '|');
  EXPECT_EQ(found("a\tlabel", {"label"}), '\t');
  EXPECT_EQ(found("\"a;b\";\"label\"", {"label"}), ';');
  EXPECT_EQ(found("\xEF\xBB\xBF"
                  "a;b",
                  {}),
            ';')
      << "the one that is there most";
  EXPECT_EQ(found("a;b;\"c,d,e,f\"", {"label"}), ';') << "outside quotes";
  EXPECT_EQ(found("label", {"label"}), ',');
  EXPECT_EQ(found("text", {"text"}, /*tabs=*/true), '\t');
  EXPECT_EQ(found("a,b\tlabel", {"label"}, /*tabs=*/true), '\t');
  EXPECT_EQ(found("a,b,label", {"label"}, /*tabs=*/true), ',');
}

TEST(Delimiters, may_be_said_and_are_no_decimal_comma) {
  EXPECT_EQ(delimiter_of("a,b;label", {.delimiter = ":"}, true, {"label"}), ':');
  EXPECT_EQ(delimiter_of("a", {.delimiter = "tab"}, false, {}), '\t');
  EXPECT_EQ(delimiter_of("a", {}, false, {"a"}, /*decimal_comma=*/true), ';');
  EXPECT_TRUE(is_tsv("x.TSV"));
  EXPECT_FALSE(is_tsv("x.csv"));
}

}  // namespace
}  // namespace tanren
