// RowReader: reads the rows of a source in windows. Invariant: where a window ends depends only on
// the rows (their number and bytes), not on memory or ranks; for a pipe, also on when rows arrive.
// An error or a stop is returned after the rows before it. Called by predict_file.
#pragma once

#include "tanren/parallel/ranks.h"
#include "tanren/predict/rows.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

constexpr int64_t kWindowBytes = int64_t{64} << 20;

struct RowWindow {
  std::vector<Row> rows;
  std::vector<uint64_t> begun;  // RowSource::begun() after each row
  uint64_t print = 0;           // RowSource::print() after all of them
  std::exception_ptr error;     // the error after the rows; null: none
  std::string error_text;
  bool stopped = false;  // a stop ended the wait for more
};

// Throws a DataError with the row's place, which says how to leave the row out.
[[noreturn]] void refuse_row(const std::string& place, const std::string& broken);

class RowReader {
 public:
  // `skips`: broken rows are handed out like others; else the first one ends the reading.
  RowReader(std::unique_ptr<RowSource> source, bool skips);

  const RowSource& source() const { return *source_; }
  // The first row that next() will give; null if there is none.
  const Row* peek();
  bool next(Row& row);
  // At most `most` rows. The window also ends after kWindowBytes, before a row that has not arrived
  // yet, and at a stop: it then has all rows that were taken from the source.
  RowWindow window(int64_t most);

 private:
  std::unique_ptr<RowSource> source_;
  std::optional<Row> first_;
  bool skips_;
};

// ConfigError on every rank if a rank has read other rows than rank 0. An exchange.
void check_same_rows(const RowWindow& window, const Ranks& ranks);

}  // namespace tanren
