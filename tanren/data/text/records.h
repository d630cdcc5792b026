// Records of a table of text: which delimiter it has, where a record ends, and its cells. The only
// splitter of CSV and TSV. Called by the readers of tables, of texts and of rows to predict.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/text/line_reader.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Whether a quote is open at the end of a record, so that it goes on in the next line. Each byte of
// a record that grows by lines is looked at once.
class OpenQuote {
 public:
  explicit OpenQuote(char delimiter) : delimiter_(delimiter) {}
  bool at_end_of(std::string_view record);
  // The place of the quote that was opened last.
  size_t opened() const { return opened_; }

 private:
  enum class State { before, plain, quoted, closed };
  char delimiter_;
  State state_ = State::before;
  size_t at_ = 0, opened_ = 0;
};

// The cells of one record, as RFC 4180 has them with any delimiter; between tabs nothing is quoted.
class Cells {
 public:
  // False if a quote is still open at the end: the record goes on in the next line. The cells are
  // parts of `record`, or of this object until the next split.
  bool split(std::string_view record, char delimiter);
  size_t size() const { return cells_.size(); }
  std::string_view operator[](size_t index) const { return cells_[index]; }
  auto begin() const { return cells_.begin(); }
  auto end() const { return cells_.end(); }
  // A cell that goes on after its closing quote; empty: none does.
  const std::string& problem() const { return problem_; }

 private:
  std::vector<std::string_view> cells_;
  std::string unquoted_;  // cells whose quotes were taken off
  std::string problem_;
};

// The longest line of a table, and the longest record of several lines.
inline constexpr size_t kMostLineBytes = size_t{64} << 20, kMostRecordBytes = size_t{16} << 20;

class RecordReader {
 public:
  enum class Found { record, end, open_quote };

  // `lines` must outlive it. `skips_blank`: lines of blanks are no records; else, and where tabs
  // are the delimiter, only empty ones are none. A record of several lines has at most `longest`
  // bytes.
  explicit RecordReader(LineReader& lines, bool skips_blank, size_t longest = std::string::npos)
      : lines_(lines), skips_blank_(skips_blank), longest_(longest) {}

  // The next record, as it stands in the file. After `open_quote` it is what was read of it.
  Found next(std::string& record, char delimiter);
  // The same in two steps, for a header whose delimiter is not known yet: its first line, and the
  // lines that belong to it.
  bool begin(std::string& record) { return begin(record, '\0'); }
  Found complete(std::string& record, char delimiter);
  // After `begin` and before `complete`: adds the lines of a quoted first cell, so that the
  // delimiter behind it is seen. All lines are added if nothing closes its quote.
  void complete_first_cell(std::string& record, const SourceOptions& options);

  // Where the last record began, and where the quote that nothing closes was opened in it.
  int64_t line() const { return line_; }
  int64_t quote_line() const { return quote_line_; }
  size_t quote_place() const { return quote_place_; }

 private:
  bool begin(std::string& record, char delimiter);

  LineReader& lines_;
  bool skips_blank_;
  size_t longest_;
  std::string more_;
  int64_t line_ = 1, quote_line_ = 1;
  size_t quote_place_ = 0;
};

// Whether a file's name ends in .tsv, in small or capital letters.
bool is_tsv(const std::filesystem::path& file);

// What separates the cells of a table, by the first line of its header. That is options.delimiter,
// if it is set; a tab in a file whose name says so (`tabs`); else the first of , ; tab | by which
// the line has all the columns `wanted`, or the one that it has most. With decimal commas it is no
// comma.
char delimiter_of(std::string_view header, const SourceOptions& options, bool tabs,
                  const std::vector<std::string>& wanted, bool decimal_comma = false);

}  // namespace tanren
