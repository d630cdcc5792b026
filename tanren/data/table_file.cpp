#include "tanren/data/table_file.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

namespace tanren {

TableFile::TableFile(const SourceOptions& options, const std::string& what,
                     const std::vector<std::string>& wanted, const std::string& decimal)
    : what_(what),
      path_(options.path),
      lines_(options.path, what, options.encoding, nullptr, kMostLineBytes),
      records_(lines_, /*skips_blank=*/true, kMostRecordBytes) {
  take_header(options, wanted, decimal);
}

void TableFile::fail(int64_t line, const std::string& problem) const {
  throw DataError(fmt::format("[{}] {}:{}: {}", what_, path_, line, problem));
}

void TableFile::take_header(const SourceOptions& options, const std::vector<std::string>& wanted,
                            const std::string& decimal) {
  if (!records_.begin(record_) || records_.line() != 1) {
    fail(1,
         "the file is empty or starts with an empty line; it needs a header line that names "
         "the columns");
  }
  if (!is_tsv(path_)) records_.complete_first_cell(record_, options);
  std::string first = record_;
  lines_.make_text(first, 1);
  delimiter_ = delimiter_of(first, options, is_tsv(path_), wanted, decimal == ",");
  const auto found = records_.complete(record_, delimiter_);
  lines_.make_text(record_, 1);
  if (found != RecordReader::Found::record || !cells_.split(record_, delimiter_)) {
    fail(1, "nothing closes a quote of the header; add it");
  }
  if (!cells_.problem().empty()) fail(1, cells_.problem());
  for (const std::string_view cell : cells_) columns_.emplace_back(trimmed(cell));
}

bool TableFile::next() {
  const auto found = records_.next(record_, delimiter_);
  if (found == RecordReader::Found::end) return false;
  lines_.make_text(record_, line());
  if (found == RecordReader::Found::open_quote || !cells_.split(record_, delimiter_)) {
    const std::string quoted = one_line(record_.substr(records_.quote_place() + 1, 40));
    fail(records_.quote_line(), "nothing closes the quote of \"" + quoted +
                                    "\"; add it, or write quotes inside a cell twice (\"\")");
  }
  if (!cells_.problem().empty()) fail(cells_.problem());
  if (cells_.size() != columns_.size()) check_count();
  ++rows_;
  hash_.add(record_);
  return true;
}

void TableFile::check_count() const {
  const bool is_short = cells_.size() < columns_.size();
  const bool is_quoted = !is_short && record_.find('"') != std::string::npos;
  if (is_quoted) fail("has more cells than the header; drop the extra ones");
  fail(fmt::format("has {}, the header names {}{}", counted(cells_.size(), "cell"), columns_.size(),
                   is_short ? "; is the line cut off?" : "; drop the extra ones"));
}

std::string_view TableFile::row() const { return trimmed(record_); }

}  // namespace tanren
