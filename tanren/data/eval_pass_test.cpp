#include "tanren/data/eval_pass.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include <ATen/ATen.h>

namespace tanren {
namespace {

TensorDataset numbers(int64_t size) {
  TensorMap fields;
  fields.set("inputs", at::arange(size, at::kFloat));
  return TensorDataset(std::move(fields), {}, "data.eval");
}

std::vector<int64_t> ids_of(EvalPass pass) {
  std::vector<int64_t> ids;
  while (const auto collated = pass.next()) {
    const auto& batch = collated->batch.ids;
    ids.insert(ids.end(), batch.const_data_ptr<int64_t>(),
               batch.const_data_ptr<int64_t>() + batch.numel());
  }
  return ids;
}

TEST(EvalPass, a_batch_of_nothing_is_refused) {
  const auto dataset = numbers(3);
  EXPECT_THROW(EvalPass(dataset, 0), DataError);
}

TEST(EvalPass, sees_each_sample_once_and_in_order_at_any_batch_size) {
  const auto dataset = numbers(21);
  std::vector<int64_t> expected(21);
  for (int64_t i = 0; i < 21; ++i) expected[i] = i;
  for (const int64_t size : {1, 4, 7, 20, 21, 22, 1000}) {
    EXPECT_EQ(ids_of(EvalPass(dataset, size)), expected) << size;
  }
}

// Collates slowly and records the threads that collate.
class SlowDataset : public Dataset {
 public:
  explicit SlowDataset(int64_t bad = -1) : bad_(bad) {}
  int64_t size() const override { return data_.size(); }
  DataInfo info() const override { return data_.info(); }
  Collated collate(const std::vector<int64_t>& indices) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    for (const auto index : indices) {
      if (index == bad_) throw DataError("sample 9 is bad");
    }
    return data_.collate(indices);
  }
  size_t num_threads() const { return threads_.size(); }

 private:
  TensorDataset data_ = numbers(21);
  int64_t bad_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
};

TEST(EvalPass, slow_batches_are_made_on_other_threads_and_come_in_order) {
  std::vector<int64_t> expected(21);
  for (int64_t i = 0; i < 21; ++i) expected[i] = i;
  for (const int64_t workers : {0, 1, 4}) {
    const SlowDataset dataset;
    EXPECT_EQ(ids_of(EvalPass(dataset, 2, 0, 1, workers)), expected) << workers;
    EXPECT_EQ(dataset.num_threads() > 1, workers > 0);
  }
}

TEST(EvalPass, an_error_comes_out_at_the_batch_it_belongs_to) {
  const SlowDataset dataset(9);
  EvalPass pass(dataset, 2, 0, 1, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pass.next()->batch.size(), 2);
  EXPECT_THROW(pass.next(), DataError);
}

TEST(EvalPass, ranks_share_it_without_duplicates) {
  for (const int64_t size : {1, 2, 21}) {
    const auto dataset = numbers(size);
    for (const int64_t world : {2, 3, 4}) {
      std::vector<int64_t> all;
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto part = ids_of(EvalPass(dataset, 4, rank, world));
        all.insert(all.end(), part.begin(), part.end());
      }
      ASSERT_EQ(all.size(), size);
      for (int64_t i = 0; i < size; ++i) EXPECT_EQ(all[i], i);
    }
  }
}

}  // namespace
}  // namespace tanren
