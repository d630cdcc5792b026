#include "tanren/predict/row_window.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <utility>

namespace tanren {

namespace {

int64_t bytes_of(const Row& row) {
  // What tables alone have is counted where they have it.
  int64_t bytes =  // NOLINTNEXTLINE(bugprone-sizeof-container)
      static_cast<int64_t>(sizeof(Row) - sizeof(row.sample.cells) - sizeof(row.sample.inputs));
  for (const Cell& cell : row.cells) {
    bytes += static_cast<int64_t>(sizeof(Cell) + cell.text.size());
  }
  for (const auto& name : row.names) {
    bytes += static_cast<int64_t>(sizeof(std::string) + name.size());
  }
  const Sample& sample = row.sample;
  bytes += static_cast<int64_t>(sample.text.size() + sample.pair.size() + sample.image.size());
  bytes += static_cast<int64_t>(sample.numbers.size() * sizeof(double));
  bytes += static_cast<int64_t>(sample.inputs.size() * sizeof(float));
  for (const auto& [name, tensor] : sample.tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace

void refuse_row(const std::string& place, const std::string& broken) {
  throw DataError("[predict] " + place + ": " + broken +
                  "; predict.broken = \"skip\" leaves a null in its place");
}

RowReader::RowReader(std::unique_ptr<RowSource> source, bool skips)
    : source_(std::move(source)), skips_(skips) {}

const Row* RowReader::peek() {
  if (first_) return &*first_;
  Row row;
  if (!source_->next(row)) return nullptr;
  first_ = std::move(row);
  return &*first_;
}

bool RowReader::next(Row& row) {
  if (!first_) return source_->next(row);
  row = std::move(*first_);
  first_.reset();
  return true;
}

RowWindow RowReader::window(int64_t most) {
  RowWindow window;
  try {
    Row row;
    for (int64_t bytes = 0; std::ssize(window.rows) < most && bytes < kWindowBytes;) {
      if (!window.rows.empty() && !source_->is_ready()) break;
      if (!next(row)) break;
      if (!row.broken.empty() && !skips_) refuse_row(row.place, row.broken);
      bytes += bytes_of(row);
      window.rows.push_back(std::move(row));
      window.begun.push_back(source_->begun());
    }
  } catch (const InputError& error) {
    window.error = std::current_exception();
    window.error_text = error.what();
  } catch (const StoppedReading&) {
    window.stopped = true;
  }
  window.print = source_->print();
  return window;
}

void check_same_rows(const RowWindow& window, const Ranks& ranks) {
  if (ranks.world().alone()) return;
  Hash64 hash;
  for (const Row& row : window.rows) hash.add(row.broken);
  hash.add(std::ssize(window.rows));
  hash.add(static_cast<int64_t>(window.print));
  hash.add(window.error_text);
  ranks.check_alike({{"the rows that are predicted (SOURCE)", hash_text(hash.value())}});
}

}  // namespace tanren
