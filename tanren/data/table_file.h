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
  // Opens options.path and reads its header. `wanted`: the columns by which the delimiter is found.
  // Error texts begin with `what` ("data.train"). DataError if there is no header.
  TableFile(const SourceOptions& options, const std::string& what,
            const std::vector<std::string>& wanted, const std::string& decimal);
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  const std::vector<std::string>& columns() const { return columns_; }

  // Reads the next row; false at the end. DataError if it cannot be split, or if it has more or
  // fewer cells than the header.
  bool next();
  // The last row's cells, its text without surrounding blanks, and the line where it began.
  const Cells& cells() const { return cells_; }
  std::string_view row() const;
  int64_t line() const { return records_.line(); }

  // What was read of the file so far. Two readings of an unchanged file are equal.
  struct Reading {
    std::vector<std::string> columns;
    char delimiter = ',';
    int64_t rows = 0;
    uint64_t hash = 0;  // of the rows
    bool operator==(const Reading&) const = default;
  };
  Reading reading() const { return {columns_, delimiter_, rows_, hash_.value()}; }
  char delimiter() const { return delimiter_; }

  // Throws a DataError that names the file and `line`. Without `line` it names the last row's line.
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
