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

// Says whether a quote is open at the end of a record, so that the record continues in the next
// line. If the record grows by lines, each byte is examined only once.
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

// The cells of one record by RFC 4180, but with any delimiter. With tabs nothing is quoted.
class Cells {
 public:
  // Returns false if a quote is still open at the end, so that the record continues in the next
  // line. The cells are views of `record`, or of this object until the next split.
  bool split(std::string_view record, char delimiter);
  size_t size() const { return cells_.size(); }
  std::string_view operator[](size_t index) const { return cells_[index]; }
  auto begin() const { return cells_.begin(); }
  auto end() const { return cells_.end(); }
  // The error for a cell that continues after its closing quote; empty if there is none.
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

  // `lines` must outlive this object. `skips_blank`: lines of only blanks are skipped. Otherwise,
  // and with tabs as delimiter, only empty lines are skipped. A record of several lines has at most
  // `longest` bytes.
  explicit RecordReader(LineReader& lines, bool skips_blank, size_t longest = std::string::npos)
      : lines_(lines), skips_blank_(skips_blank), longest_(longest) {}

  // Reads the next record, as it stands in the file. With `open_quote`, `record` is the part that
  // was read.
  Found next(std::string& record, char delimiter);
  // The same in two steps, for a header whose delimiter is not known yet. `begin` reads its first
  // line, `complete` adds its further lines.
  bool begin(std::string& record) { return begin(record, '\0'); }
  Found complete(std::string& record, char delimiter);
  // Call this between `begin` and `complete`. It adds the lines of a quoted first cell, so that the
  // delimiter after it is seen. If nothing closes the quote, it adds all lines.
  void complete_first_cell(std::string& record, const SourceOptions& options);

  // The line where the last record began, and line and place of its quote that nothing closes.
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

// Finds the delimiter of a table from the first line of its header. options.delimiter is used if it
// is set. A tab is used if `tabs` (the file's name ends in .tsv) and the line has a tab or, with
// tabs, all the columns `wanted`. Otherwise it is the first of , ; tab | that splits the line into
// cells with all the columns `wanted`, or the most frequent one. With decimal commas, the comma is
// not tried.
char delimiter_of(std::string_view header, const SourceOptions& options, bool tabs,
                  const std::vector<std::string>& wanted, bool decimal_comma = false);

}  // namespace tanren
