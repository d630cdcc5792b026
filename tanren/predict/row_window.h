// RowReader: the rows of a source, a window at a time. Invariant: where a window ends is a function
// of the rows alone (how many, and of how many bytes), whatever the memory and the ranks; of a
// pipe, also of when they come. What ends the reading is handed out behind the rows before it.
// Called by predict_file.
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
  std::vector<uint64_t> begun;  // RowSource::begun() behind each row
  uint64_t print = 0;           // RowSource::print() behind all of them
  std::exception_ptr error;     // what is wrong behind the rows; null: nothing
  std::string error_text;
  bool stopped = false;  // a stop ended the wait for more
};

// A row that cannot be predicted, by its place: DataError that says how to leave it out.
[[noreturn]] void refuse_row(const std::string& place, const std::string& broken);

class RowReader {
 public:
  // `skips`: broken rows are handed out like others; else the first one ends the reading.
  RowReader(std::unique_ptr<RowSource> source, bool skips);

  const RowSource& source() const { return *source_; }
  // The first row that next() will give; null if there is none.
  const Row* peek();
  bool next(Row& row);
  // At most `most` rows, and no more after kWindowBytes or where the next one would be waited for.
  // StoppedReading ends it: all rows that were
  // taken from the source are handed out before.
  RowWindow window(int64_t most);

 private:
  std::unique_ptr<RowSource> source_;
  std::optional<Row> first_;
  bool skips_;
};

// ConfigError on every rank if a rank has read other rows than rank 0. An exchange.
void check_same_rows(const RowWindow& window, const Ranks& ranks);

}  // namespace tanren
