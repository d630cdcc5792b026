#include "tanren/predict/row_window.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace tanren {
namespace {

using testing::error_of;

// Rows of some bytes; -1: a broken row; -2: the source itself is broken there; -3: a stop ends the
// wait for the next; -4: what comes next is waited for.
class SizedRows : public RowSource {
 public:
  explicit SizedRows(std::vector<int64_t> sizes, uint64_t since = 0)
      : sizes_(std::move(sizes)), since_(since) {}
  bool is_ready() override { return at_ == sizes_.size() || sizes_[at_] != -4; }
  bool next(Row& row) override {
    row = {};
    if (at_ < sizes_.size() && sizes_[at_] == -4) ++at_;
    if (at_ == sizes_.size()) return false;
    const int64_t size = sizes_[at_++];
    if (size == -3) throw StoppedReading();
    if (size == -2) throw DataError("[predict] the source ends badly");
    row.place = "row " + to_text(at_ - 1);
    if (size == -1) {
      row.broken = "is broken";
    } else {
      row.cells = {{std::string(static_cast<size_t>(size), 'x')}};
    }
    print_.add(size);
    times_ += since_;
    return true;
  }

 private:
  std::vector<int64_t> sizes_;
  uint64_t since_;
  size_t at_ = 0;
};

RowReader reader_of(std::vector<int64_t> sizes, bool skips = false) {
  return RowReader(std::make_unique<SizedRows>(std::move(sizes)), skips);
}

TEST(RowReader, gives_the_rows_before_what_is_broken_and_then_the_error) {
  auto reader = reader_of({1, 2, -1, 3});
  RowWindow window = reader.window(10);
  EXPECT_EQ(window.rows.size(), 2u);
  ASSERT_TRUE(window.error);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { std::rethrow_exception(window.error); }),
                         "row 2: is broken; predict.broken = \"skip\"");
  auto ends_badly = reader_of({1, -2}, /*skips=*/true);
  window = ends_badly.window(10);
  EXPECT_EQ(window.rows.size(), 1u);
  TANREN_EXPECT_CONTAINS(window.error_text, "ends badly");
  auto skipping = reader_of({1, 2, -1, 3}, /*skips=*/true);
  window = skipping.window(10);
  EXPECT_EQ(window.rows.size(), 4u);
  EXPECT_FALSE(window.error);
}

// Issue 26: what was taken from a pipe was lost.
TEST(RowReader, gives_the_rows_that_were_taken_before_a_stop) {
  auto reader = reader_of({1, 2, -3});
  const RowWindow window = reader.window(10);
  EXPECT_EQ(window.rows.size(), 2u);
  EXPECT_EQ(window.begun.size(), 2u);
  EXPECT_TRUE(window.stopped);
  EXPECT_FALSE(window.error);
  auto full = reader_of({1, 2, -3});
  EXPECT_FALSE(full.window(2).stopped) << "nothing was waited for";
  const RowWindow rest = full.window(2);
  EXPECT_TRUE(rest.rows.empty());
  EXPECT_TRUE(rest.stopped);
}

TEST(RowReader, ends_a_window_by_rows_and_by_bytes_alone) {
  auto reader = reader_of({1, 1, 1, 1, 1});
  ASSERT_NE(reader.peek(), nullptr);
  EXPECT_EQ(reader.window(2).rows.size(), 2u) << "the row that was looked at is one of them";
  EXPECT_EQ(reader.window(2).rows.size(), 2u);
  EXPECT_EQ(reader.window(2).rows.size(), 1u);
  EXPECT_TRUE(reader.window(2).rows.empty());
  const int64_t half = kWindowBytes / 2;
  auto large = reader_of({half, half, 1, 1});
  EXPECT_EQ(large.window(100).rows.size(), 2u);
  EXPECT_EQ(large.window(100).rows.size(), 2u);
}

// Issue 26: cells of little text, whose windows took far more memory than was counted.
TEST(RowReader, counts_cells_and_names_beside_their_texts) {
  class WideRows : public RowSource {
   public:
    bool next(Row& row) override {
      row = {};
      row.cells.resize(cells);
      row.names.resize(names);
      return true;
    }
    size_t cells = 0, names = 0;
  };
  constexpr size_t kMany = 100'000;
  for (const bool has_names : {false, true}) {
    auto rows = std::make_unique<WideRows>();
    (has_names ? rows->names : rows->cells) = kMany;
    const size_t each = has_names ? sizeof(std::string) : sizeof(Cell);
    RowReader reader(std::move(rows), false);
    const RowWindow window = reader.window(kMany);
    EXPECT_LE(window.rows.size(), static_cast<size_t>(kWindowBytes) / (kMany * each) + 1);
  }
}

// Issue 26: tail -f log.csv got no answer before thousands of rows.
TEST(RowReader, ends_a_window_where_the_next_row_would_be_waited_for) {
  auto reader = reader_of({-4, 1, 2, -4, 3, 4, 5});
  EXPECT_EQ(reader.window(10).rows.size(), 2u) << "the first row is waited for";
  EXPECT_EQ(reader.window(10).rows.size(), 3u);
  EXPECT_TRUE(reader.window(10).rows.empty());
}

TEST(RowReader, gives_the_print_of_the_source_after_each_row) {
  auto reader = reader_of({1, 2, 3}), begun = reader_of({1, 2});
  const auto prints = reader.window(3).begun;
  begun.window(2);
  ASSERT_EQ(prints.size(), 3u);
  EXPECT_EQ(prints[1], begun.source().print());
  EXPECT_NE(prints[1], prints[2]);
}

TEST(RowReader, sees_other_times_of_files_that_ranks_may_have_in_their_copies) {
  RowReader here(std::make_unique<SizedRows>(std::vector<int64_t>{1, 2}, 5), false);
  RowReader there(std::make_unique<SizedRows>(std::vector<int64_t>{1, 2}, 6), false);
  const RowWindow mine = here.window(2), theirs = there.window(2);
  EXPECT_EQ(mine.print, theirs.print);
  EXPECT_NE(mine.begun, theirs.begun);
}

}  // namespace
}  // namespace tanren
