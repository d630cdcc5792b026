#include "tanren/checkpoint/check_tensors.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

TensorMap small_model() {
  TensorMap tensors;
  tensors.set("layer.weight", at::zeros({3, 4}));
  tensors.set("layer.bias", at::zeros({3}));
  return tensors;
}

TEST(CheckTensors, lists_what_is_missing_unexpected_and_different) {
  TensorMap found;
  found.set("layer.weight", at::zeros({5, 4}));
  found.set("head.weight", at::zeros({2, 3}));
  const auto error = testing::error_of<CheckpointError>(
      [&] { check_names_and_shapes(small_model(), found, "step-5"); });
  TANREN_EXPECT_CONTAINS(error, "step-5 belongs to another model");
  TANREN_EXPECT_CONTAINS(error, "1 missing (layer.bias [3] Float)");
  TANREN_EXPECT_CONTAINS(error, "1 unexpected (head.weight [2, 3] Float)");
  TANREN_EXPECT_CONTAINS(error, "layer.weight is [5, 4] Float, here [3, 4] Float");
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(CheckTensors, another_dtype_differs_too) {
  auto found = small_model();
  found.set("layer.bias", at::zeros({3}, at::kDouble));
  TANREN_EXPECT_CONTAINS(testing::error_of<CheckpointError>(
                             [&] { check_names_and_shapes(small_model(), found, "step-5"); }),
                         "layer.bias is [3] Double, here [3] Float");
}

TEST(CheckTensors, a_long_list_is_cut_at_ten_and_says_how_long_it_is) {
  TensorMap many;
  for (int i = 0; i < 25; ++i) many.set("w" + std::to_string(i), at::zeros({1}));
  const auto error =
      testing::error_of<CheckpointError>([&] { check_names_and_shapes(many, {}, "step-5"); });
  TANREN_EXPECT_CONTAINS(error, "25 missing");
  TANREN_EXPECT_CONTAINS(error, "w9 [1]");
  TANREN_EXPECT_CONTAINS(error, "and 15 more");
  EXPECT_EQ(error.find("w10"), std::string::npos);
}

TEST(CheckTensors, the_same_names_and_shapes_in_any_order_fit) {
  TensorMap turned;
  turned.set("layer.bias", at::ones({3}));
  turned.set("layer.weight", at::ones({3, 4}));
  EXPECT_NO_THROW(check_names_and_shapes(small_model(), turned, "step-5"));
}

}  // namespace
}  // namespace tanren
