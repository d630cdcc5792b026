#include "tanren/ops/quantized_embedding.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

using testing::error_of;

TEST(QuantizedEmbedding, refuses_ids_outside_of_the_table) {
  const QuantizedWeight weight = quantize_weight(at::randn({5, 8}), "w");
  for (const int64_t bad : {-1, 5, 1 << 30}) {
    const auto text = error_of<Error>([&] {
      quantized_embedding(weight, at::tensor({int64_t{0}, bad}), at::kFloat);
    });
    TANREN_EXPECT_CONTAINS(text, "in a table of 5 rows");
  }
  TANREN_EXPECT_CONTAINS(
      error_of<Error>([&] { quantized_embedding(weight, at::ones({2}), at::kFloat); }),
      "Float ids");
}

TEST(QuantizedEmbedding, is_the_expanded_tables_row_bit_by_bit) {
  at::manual_seed(21);
  for (const int64_t group : {0, 4, 20}) {
    const QuantizedWeight weight = quantize_weight(at::randn({50, 60}), "w", group);
    const at::Tensor ids = at::randint(50, {7, 90}, at::kLong);
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor expected = at::embedding(expand(weight, dtype), ids);
      EXPECT_TRUE(at::equal(quantized_embedding(weight, ids, dtype), expected)) << group;
      EXPECT_TRUE(at::equal(quantized_embedding(weight, ids.to(at::kInt).t(), dtype),
                            expected.transpose(0, 1)));
    }
  }
  const QuantizedWeight weight = quantize_weight(at::randn({5, 8}), "w");
  EXPECT_EQ(quantized_embedding(weight, at::empty({0, 3}, at::kLong), at::kFloat).numel(), 0);
}

TEST(QuantizedEmbedding, of_a_linear_layers_weight_has_the_same_rows) {
  at::manual_seed(22);
  for (const int64_t rows : {5, 64, 150}) {
    for (const int64_t group : {0, 12}) {
      const QuantizedWeight weight =
          quantize_weight(at::randn({rows, group == 0 ? 23 : 24}), "w", group);
      const PackedWeight packed = pack_weight(weight);
      const at::Tensor ids = at::arange(rows - 1, -1, -1);
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        EXPECT_TRUE(at::equal(quantized_embedding(packed, ids, dtype),
                              quantized_embedding(weight, ids, dtype)))
            << rows << " rows, groups of " << group;
      }
      EXPECT_THROW(quantized_embedding(packed, ids + 1, at::kFloat), Error);
    }
  }
}

TEST(QuantizedEmbedding, a_dry_run_knows_its_shape) {
  const DryScope dry;
  const QuantizedWeight weight{at::empty({30, 50}, at::kChar), at::empty({30, 1}),
                               at::empty({30, 1}, at::kInt)};
  const at::Tensor y = quantized_embedding(weight, at::empty({4, 6}, at::kLong), at::kBFloat16);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({4, 6, 50}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace tanren
