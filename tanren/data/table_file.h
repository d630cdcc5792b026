// TableFile: the rows of a CSV or TSV with a header line, one after the other, so that memory does
// not grow with the file. Called by the kind csv.
#pragma once

#include "tanren/base/hash.h"
#include "tanren/config/run_config.h"
#include "tanren/data/text/records.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

class TableFile {
 public:
  // Opens options.path and reads its header. `wanted`: columns that the delimiter is found by.
  // Error texts begin with `what` ("data.train"). DataError if there is no header.
  TableFile(const SourceOptions& options, const std::string& what,
            const std::vector<std::string>& wanted, const std::string& decimal);
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  const std::vector<std::string>& columns() const { return columns_; }

  // The next row; false at the end. DataError if it has not as many cells as the header, or cannot
  // be split.
  bool next();
  // Of the last row: its cells, its text without blanks around it, and where it began.
  const Cells& cells() const { return cells_; }
  std::string_view row() const;
  int64_t line() const { return records_.line(); }

  // What was read of the file until now. Two readings of a file that nobody changes are alike.
  struct Reading {
    std::vector<std::string> columns;
    char delimiter = ',';
    int64_t rows = 0;
    uint64_t hash = 0;  // of the rows
    bool operator==(const Reading&) const = default;
  };
  Reading reading() const { return {columns_, delimiter_, rows_, hash_.value()}; }
  char delimiter() const { return delimiter_; }

  // DataError that names the file and the line; without one, that of the last row.
  [[noreturn]] void fail(int64_t line, const std::string& problem) const;
  [[noreturn]] void fail(const std::string& problem) const { fail(line(), problem); }

 private:
  void take_header(const SourceOptions& options, const std::vector<std::string>& wanted,
                   const std::string& decimal);
  void check_count() const;

  std::string what_, path_;
  LineReader lines_;
  RecordReader records_;
  char delimiter_ = ',';
  std::vector<std::string> columns_;
  std::string record_;
  Cells cells_;
  int64_t rows_ = 0;
  Hash64 hash_;
};

}  // namespace tanren
