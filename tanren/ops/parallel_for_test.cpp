#include "tanren/ops/parallel_for.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {
namespace {

class ThreadsOf {
 public:
  explicit ThreadsOf(int threads) { at::set_num_threads(threads); }
  ~ThreadsOf() { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

struct Parts {
  std::set<std::pair<int64_t, int64_t>> ranges;
  std::set<std::thread::id> threads;
};

Parts parts_of(int64_t begin, int64_t end, int64_t grain) {
  Parts parts;
  std::mutex mutex;
  parallel_for(begin, end, grain, [&](int64_t from, int64_t to) {
    const std::lock_guard lock(mutex);
    parts.ranges.emplace(from, to);
    parts.threads.insert(std::this_thread::get_id());
    EXPECT_TRUE(at::in_parallel_region() || parts.ranges.size() == 1);
  });
  return parts;
}

using Ranges = std::set<std::pair<int64_t, int64_t>>;

TEST(ParallelFor, shares_the_range_among_the_threads_of_torch) {
  const ThreadsOf threads(3);
  const Parts parts = parts_of(2, 12, 1);
  EXPECT_EQ(parts.ranges, (Ranges{{2, 6}, {6, 10}, {10, 12}}));
  EXPECT_EQ(parts.threads.size(), 3u) << "this file is compiled without -fopenmp";
}

TEST(ParallelFor, makes_no_part_smaller_than_the_grain) {
  const ThreadsOf threads(4);
  EXPECT_EQ(parts_of(0, 10, 4).ranges, (Ranges{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(parts_of(0, 10, 10).ranges, (Ranges{{0, 10}}));
  EXPECT_EQ(parts_of(0, 1, 0).ranges, (Ranges{{0, 1}}));
  EXPECT_EQ(parts_of(3, 3, 1).ranges, Ranges{});
}

TEST(ParallelFor, on_one_thread_or_inside_of_another_is_one_call) {
  {
    const ThreadsOf threads(1);
    EXPECT_EQ(parts_of(0, 10, 1).ranges, (Ranges{{0, 10}}));
  }
  const ThreadsOf threads(2);
  std::mutex mutex;
  std::vector<Parts> inner;
  parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    Parts parts = parts_of(0, 10, 1);
    const std::lock_guard lock(mutex);
    inner.push_back(std::move(parts));
  });
  ASSERT_EQ(inner.size(), 2u);
  for (const Parts& parts : inner) EXPECT_EQ(parts.ranges, (Ranges{{0, 10}}));
}

TEST(ParallelFor, throws_what_a_part_threw_once_all_have_ended) {
  const ThreadsOf threads(2);
  int ended = 0;
  std::mutex mutex;
  const auto work = [&](int64_t from, int64_t) {
    const std::lock_guard lock(mutex);
    ++ended;
    if (from > 0) throw std::runtime_error("the second");
  };
  EXPECT_THROW(parallel_for(0, 2, 1, work), std::runtime_error);
  EXPECT_EQ(ended, 2);
  EXPECT_FALSE(at::in_parallel_region());
  EXPECT_EQ(at::get_thread_num(), 0);
}

}  // namespace
}  // namespace tanren
