#include "tanren/data/eval_pass.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

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
