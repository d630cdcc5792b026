#include "tanren/data/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

std::vector<uint64_t> numbered(int64_t rows) {
  std::vector<uint64_t> hashes;
  for (int64_t row = 0; row < rows; ++row) hashes.push_back(split_hash(row));
  return hashes;
}

std::vector<int64_t> eval_rows(const std::vector<uint64_t>& hashes,
                               const std::vector<int64_t>& classes, double share) {
  return split_rows(hashes, classes, share, true);
}

// Class → how many of `rows` it has.
std::map<int64_t, int64_t> counts_by_class(const std::vector<int64_t>& rows,
                                           const std::vector<int64_t>& classes) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t row : rows) ++counts[classes[static_cast<size_t>(row)]];
  return counts;
}

TEST(SplitRows, do_not_depend_on_machine_or_version) {
  // Python: xxhash.xxh3_64_intdigest("5.1,3.5,1.4,0.2,setosa")
  EXPECT_EQ(split_hash("5.1,3.5,1.4,0.2,setosa"), 0xae68d5c223806be7u);
  EXPECT_EQ(split_hash(int64_t{7}), 0x81671e58d6b596afu);  // of (7).to_bytes(8, "little")
}

TEST(SplitRows, parts_are_disjoint_and_complete) {
  for (const int64_t rows : {2, 3, 10, 1000}) {
    const auto hashes = numbered(rows);
    std::vector<int64_t> classes;
    for (int64_t row = 0; row < rows; ++row) classes.push_back(row % 7 - 1);
    for (const auto& by : {std::vector<int64_t>(), classes}) {
      for (const double share : {0.001, 0.1, 0.5, 0.999}) {
        auto all = split_rows(hashes, by, share, false);
        const auto eval = eval_rows(hashes, by, share);
        EXPECT_TRUE(std::is_sorted(eval.begin(), eval.end()));
        all.insert(all.end(), eval.begin(), eval.end());
        std::sort(all.begin(), all.end());
        std::vector<int64_t> wanted(static_cast<size_t>(rows));
        std::iota(wanted.begin(), wanted.end(), 0);
        EXPECT_EQ(all, wanted) << rows << " rows, share " << share;
      }
    }
  }
}

TEST(SplitRows, without_classes_the_share_is_that_of_the_hashes) {
  const auto eval = eval_rows(numbered(20000), {}, 0.1);
  EXPECT_NEAR(static_cast<double>(eval.size()), 2000, 150);  // 3.5 standard deviations
}

TEST(SplitRows, without_classes_further_rows_move_none) {
  const auto before = eval_rows(numbered(1000), {}, 0.1);
  auto after = eval_rows(numbered(3000), {}, 0.1);
  EXPECT_GT(after.size(), before.size());
  std::erase_if(after, [](int64_t row) { return row >= 1000; });
  EXPECT_EQ(after, before);
}

TEST(SplitRows, neither_part_is_empty_however_small_or_large_the_share) {
  const auto hashes = numbered(5);
  EXPECT_EQ(eval_rows(hashes, {}, 1e-9).size(), 1U);
  EXPECT_EQ(eval_rows(hashes, {}, 1 - 1e-9).size(), 4U);
  const std::vector<int64_t> classes(5, 0);
  EXPECT_EQ(eval_rows(hashes, classes, 1e-9).size(), 1U);
  EXPECT_EQ(eval_rows(hashes, classes, 1 - 1e-9).size(), 4U);
}

TEST(SplitRows, rows_of_one_hash_are_all_for_training_if_there_is_no_other) {
  const std::vector<uint64_t> equal(8, split_hash("one"));
  EXPECT_TRUE(eval_rows(equal, {}, 0.9).empty());
  EXPECT_TRUE(eval_rows(equal, std::vector<int64_t>(8, 3), 0.9).empty());
  EXPECT_TRUE(eval_rows({}, {}, 0.5).empty());
}

TEST(SplitRows, each_class_gives_its_share) {
  const auto hashes = numbered(1 + 2 + 25 + 104);
  std::vector<int64_t> classes;
  for (const auto& [label, rows] : std::map<int64_t, int>{{0, 1}, {1, 2}, {2, 25}, {3, 104}}) {
    classes.insert(classes.end(), static_cast<size_t>(rows), label);
  }
  std::rotate(classes.begin(), classes.begin() + 40, classes.end());
  const auto counts = counts_by_class(eval_rows(hashes, classes, 0.1), classes);
  // 2.5 is rounded up; a class of one row is for training.
  EXPECT_EQ(counts, (std::map<int64_t, int64_t>{{1, 1}, {2, 3}, {3, 10}}));
}

TEST(SplitRows, a_class_gives_the_rows_with_its_smallest_hashes) {
  const auto hashes = numbered(100);
  const std::vector<int64_t> classes(100, 0);
  std::vector<uint64_t> sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  const auto eval = eval_rows(hashes, classes, 0.2);
  ASSERT_EQ(eval.size(), 20U);
  for (const int64_t row : eval) EXPECT_LE(hashes[static_cast<size_t>(row)], sorted[19]);
}

TEST(SplitRows, duplicates_of_a_row_are_in_one_part) {
  // Each of 200 rows occurs one to five times.
  std::vector<uint64_t> hashes;
  std::vector<int64_t> classes;
  for (int64_t row = 0; row < 200; ++row) {
    for (int64_t copy = 0; copy <= row % 5; ++copy) {
      hashes.push_back(split_hash(row));
      classes.push_back(row % 3);
    }
  }
  for (const double share : {0.1, 0.2, 0.37, 0.5, 0.8}) {
    for (const auto& by : {std::vector<int64_t>(), classes}) {
      std::set<uint64_t> train, eval;
      for (const int64_t row : split_rows(hashes, by, share, false)) {
        train.insert(hashes[static_cast<size_t>(row)]);
      }
      for (const int64_t row : eval_rows(hashes, by, share)) {
        eval.insert(hashes[static_cast<size_t>(row)]);
      }
      EXPECT_EQ(train.size() + eval.size(), 200U) << share;
    }
  }
  const auto counts = counts_by_class(eval_rows(hashes, classes, 0.2), classes);
  std::vector<int64_t> all(classes.size());
  std::iota(all.begin(), all.end(), 0);
  for (const auto& [label, rows] : counts_by_class(all, classes)) {
    EXPECT_NEAR(static_cast<double>(counts.at(label)), 0.2 * static_cast<double>(rows), 3);
  }
}

TEST(SplitRows, a_large_group_of_duplicates_is_passed_over) {
  // 60 of 100 rows are equal, and they have the smallest hash.
  std::vector<uint64_t> hashes(60, 0);
  for (uint64_t row = 1; row <= 40; ++row) hashes.push_back(row << 40);
  const auto eval = eval_rows(hashes, std::vector<int64_t>(100, 0), 0.1);
  ASSERT_EQ(eval.size(), 10U);
  EXPECT_EQ(eval.front(), 60);
}

TEST(SplitRows, a_hash_of_rows_of_two_classes_is_found) {
  const std::vector<uint64_t> hashes = {5, 9, 5, 9, 5};
  EXPECT_FALSE(rows_of_two_classes(hashes, {0, 1, 0, 1, 0}));
  EXPECT_FALSE(rows_of_two_classes(hashes, {}));
  const auto found = rows_of_two_classes(hashes, {0, 1, 0, 0, 0});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (std::pair<int64_t, int64_t>(1, 3)));
}

TEST(SplitRows, two_groups_of_duplicates_give_the_smaller_one) {
  const std::vector<uint64_t> hashes = {1, 1, 1, 1, 1, 2, 2, 2};
  const auto eval = eval_rows(hashes, std::vector<int64_t>(8, 0), 0.1);
  EXPECT_EQ(eval, (std::vector<int64_t>{5, 6, 7}));
}

}  // namespace
}  // namespace tanren
