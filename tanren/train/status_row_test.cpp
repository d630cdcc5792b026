#include "tanren/train/status_row.h"

#include "tanren/base/device_reads.h"
#include "tanren/comm/on_ranks_test_util.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <vector>

namespace tanren {
namespace {

using Join = StatusRow::Join;
using Numbers = std::vector<double>;

at::Tensor scalar(double value, at::ScalarType dtype = at::kFloat) {
  return at::scalar_tensor(value, dtype);
}

// Two microsteps of two terms.
std::vector<at::Tensor> sums_of(double first) {
  return {scalar(first), scalar(2, at::kDouble), scalar(3), scalar(NAN)};
}

TEST(StatusRow, of_one_rank_stays_as_it_is_in_one_read) {
  const Ranks alone;
  StatusRow row(alone, at::kCPU);
  const auto sums = sums_of(0.1);
  const auto each = row.add(sums, Join::own);
  const auto norm = row.add({scalar(-3)}, Join::norm);  // is not squared
  const auto host = row.add(Numbers{7, 8});
  const auto totals = row.add_column_sums(each, sums, 2);
  const auto first = row.add({scalar(5), scalar(6)}, Join::first);
  const int64_t before = num_device_reads();
  row.read();
  EXPECT_EQ(num_device_reads(), before + 1);
  EXPECT_EQ(row.take(each)[0], double{0.1F});
  EXPECT_TRUE(std::isnan(row.take(each)[3]));
  EXPECT_EQ(row.take(norm), Numbers{-3});
  EXPECT_EQ(row.take(host), (Numbers{7, 8}));
  EXPECT_EQ(row.take(totals)[0], double{0.1F} + 3);
  EXPECT_TRUE(std::isnan(row.take(totals)[1]));
  EXPECT_EQ(row.take(first), (Numbers{5, 6}));
}

TEST(StatusRow, of_several_ranks_is_joined_part_by_part) {
  testing::on_ranks(3, [](Communicator& comm) {
    const Ranks ranks({&comm, [](Communicator*) {}}, ParallelPlan());
    const double rank = comm.rank();
    StatusRow row(ranks, at::kCPU);
    // Rank 1 has no samples.
    const auto sums = comm.rank() == 1 ? std::vector<at::Tensor>() : sums_of(rank);
    const auto each = row.add(sums, Join::own);
    const auto norm = row.add({scalar(rank + 1)}, Join::norm);
    const auto flags = row.add(Numbers{rank, 1});
    const auto totals = row.add_column_sums(each, sums, 2);
    const auto first = row.add({scalar(rank + 5)}, Join::first);
    const auto sum = row.add({scalar(rank)}, Join::sum);
    const auto more = row.add(Numbers{rank * 10});
    row.read();
    EXPECT_EQ(row.take(each).size(), sums.size());
    if (!sums.empty()) {
      EXPECT_EQ(row.take(each)[0], rank);
    }
    EXPECT_EQ(row.take(norm), Numbers{std::sqrt(1.0 + 4 + 9)});
    EXPECT_EQ(row.take(flags), (Numbers{3, 3}));
    EXPECT_EQ(row.take(totals)[0], 0 + 3 + 2 + 3);
    EXPECT_TRUE(std::isnan(row.take(totals)[1]));
    EXPECT_EQ(row.take(first), Numbers{5});
    EXPECT_EQ(row.take(sum), Numbers{3});
    EXPECT_EQ(row.take(more), Numbers{30});
  });
}

}  // namespace
}  // namespace tanren
