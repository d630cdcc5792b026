#include "tanren/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <vector>

namespace tanren {
namespace {

std::vector<int64_t> visits(int64_t size, uint64_t seed, int64_t epoch, bool shuffle = true) {
  const Order order(size, seed, epoch, shuffle);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(order(i));
  return all;
}

TEST(Order, visits_every_sample_once_for_every_size) {
  std::vector<int64_t> sizes = {1, 2, 3, 5, 6, 7, 10, 1439, 100000};
  for (int64_t power = 4; power <= 4096; power *= 2) {
    for (const int64_t size : {power - 1, power, power + 1}) sizes.push_back(size);
  }
  for (const int64_t size : sizes) {
    auto seen = visits(size, 7, 3);
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> expected(static_cast<size_t>(size));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(seen, expected) << size;
  }
}

TEST(Order, stays_inside_for_sizes_that_no_list_could_hold) {
  const int64_t size = (int64_t{1} << 50) + 12345;
  const Order order(size, 1, 0, true);
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t index = order(size - 1 - i);
    EXPECT_GE(index, 0);
    EXPECT_LT(index, size);
  }
}

TEST(Order, without_shuffle_is_the_identity) {
  std::vector<int64_t> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(visits(100, 7, 3, false), expected);
}

TEST(Order, differs_by_seed_and_by_epoch_and_by_nothing_else) {
  EXPECT_EQ(visits(1000, 1, 2), visits(1000, 1, 2));
  EXPECT_NE(visits(1000, 1, 2), visits(1000, 1, 3));
  EXPECT_NE(visits(1000, 1, 2), visits(1000, 2, 2));
  EXPECT_NE(visits(1000, 1, 2), visits(1000, 2, 1));
}

TEST(Order, every_permutation_of_few_samples_is_about_as_likely) {
  constexpr int kEpochs = 6000;
  for (const int64_t size : {2, 3, 4}) {
    std::map<std::vector<int64_t>, int> seen;
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) ++seen[visits(size, 11, epoch)];
    const double permutations = size == 2 ? 2 : size == 3 ? 6 : 24;
    const double expected = kEpochs / permutations;
    double chi_squared = (permutations - static_cast<double>(seen.size())) * expected;
    for (const auto& [order, count] : seen) {
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    // The bound is six standard deviations above the mean, which is permutations - 1.
    EXPECT_LT(chi_squared, permutations - 1 + 6 * std::sqrt(2 * (permutations - 1))) << size;
  }
}

TEST(Order, neighbours_part) {
  constexpr int64_t kSize = 1439;
  const auto order = visits(kSize, 5, 0);
  double distance = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    distance += static_cast<double>(std::abs(order[i] - order[i - 1]));
  }
  // Two independent uniform places are a third of the range apart on average.
  EXPECT_NEAR(distance / (kSize - 1) / kSize, 1.0 / 3, 0.03);
}

}  // namespace
}  // namespace tanren
