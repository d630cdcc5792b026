#include "tanren/base/quantized_weight.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

using testing::error_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(QuantizedWeight, refuses_what_a_hostile_file_may_say) {
  const at::Tensor values = at::ones({3, 8}, at::kChar);
  const auto refused = [&](const at::Tensor& of, const at::Tensor& scales) {
    const auto text = error_of<CheckpointError>([&] { checked_weight(of, scales, "fc.weight"); });
    TANREN_EXPECT_CONTAINS(text, "[quantize] fc.weight");
    return text;
  };
  for (const double bad : {kNan, kInfinity, 0.0, -1.0, 3e38}) {
    at::Tensor scales = at::ones({3, 1});
    scales[2][0] = bad;
    TANREN_EXPECT_CONTAINS(refused(values, scales), "not finite and above 0");
  }
  for (const at::Tensor& scales :
       {at::ones({4}), at::ones({2, 1}), at::ones({3, 3}), at::ones({3, 0}), at::ones({3, 1, 1}),
        at::ones({}), at::ones({3, 8})}) {
    TANREN_EXPECT_CONTAINS(refused(values, scales), "scales of shape");
  }
  TANREN_EXPECT_CONTAINS(refused(values.to(at::kByte), at::ones({3})), "dtype");
  TANREN_EXPECT_CONTAINS(refused(values, at::ones({3}, at::kDouble)), "dtype");
  TANREN_EXPECT_CONTAINS(refused(at::ones({0, 8}, at::kChar), at::ones({0})), "empty");
  TANREN_EXPECT_CONTAINS(refused(at::ones({}, at::kChar), at::ones({1})), "single number");
  // The shape alone is too large: the tensor has one byte.
  TANREN_EXPECT_CONTAINS(
      refused(at::ones({1}, at::kChar).expand({2, int64_t{1} << 40}), at::ones({2})),
      "elements a channel");
}

TEST(QuantizedWeight, refuses_a_weight_that_it_cannot_hold) {
  const auto refused = [](const at::Tensor& weight, int64_t group) {
    return error_of<InputError>([&] { quantize_weight(weight, "fc.weight", group); });
  };
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    at::Tensor weight = at::ones({2, 8});
    weight[1][3] = bad;
    TANREN_EXPECT_CONTAINS(refused(weight, 0), "not finite");
  }
  for (const int64_t group : {-4, 3, 6, 16}) {
    TANREN_EXPECT_CONTAINS(refused(at::ones({2, 24}), group), "groups of");
  }
  TANREN_EXPECT_CONTAINS(refused(at::ones({2, 8}, at::kInt), 0), "dtype");
  TANREN_EXPECT_CONTAINS(refused(at::ones({2, 0}), 0), "empty");
}

TEST(QuantizedWeight, is_within_half_a_scale_of_the_weight_and_holds_its_sums) {
  at::manual_seed(3);
  const at::Tensor weight = at::randn({5, 3, 2, 4}) * at::logspace(-3, 3, 5).view({5, 1, 1, 1});
  for (const int64_t group : {0, 4, 12}) {
    const QuantizedWeight quantized = quantize_weight(weight, "w", group);
    const int64_t groups = group == 0 ? 1 : 24 / group;
    EXPECT_EQ(quantized.scales.sizes(), at::IntArrayRef({5, groups}));
    EXPECT_EQ(quantized.group(), 24 / groups);
    const at::Tensor error = (expand(quantized, at::kFloat) - weight).view({5, groups, -1}).abs();
    EXPECT_TRUE(error.le(quantized.scales.unsqueeze(-1) * 0.5001).all().item<bool>());
    const at::Tensor values = quantized.values.view({5, groups, -1}).to(at::kInt);
    EXPECT_TRUE(at::equal(values.sum(-1).to(at::kInt), quantized.sums));
    EXPECT_TRUE(at::equal(values.abs().amax(-1), at::full({5, groups}, 127, at::kInt)));
    // A weight made from a file's tensors is the same.
    const QuantizedWeight read = checked_weight(quantized.values, quantized.scales, "w");
    EXPECT_TRUE(at::equal(read.sums, quantized.sums));
    EXPECT_TRUE(at::equal(expand(read, at::kFloat), expand(quantized, at::kFloat)));
  }
}

TEST(QuantizedWeight, of_a_transposed_weight_is_dense_and_that_of_its_copy) {
  at::manual_seed(1);
  const at::Tensor turned = at::randn({8, 5}).t();
  const QuantizedWeight of = quantize_weight(turned, "w");
  const QuantizedWeight copy = quantize_weight(turned.contiguous(), "w");
  EXPECT_TRUE(of.values.is_contiguous());
  EXPECT_TRUE(at::equal(of.values, copy.values));
  EXPECT_TRUE(at::equal(of.sums, copy.sums));
}

TEST(QuantizedWeight, channels_of_zeros_and_of_tiny_numbers_stay_finite) {
  at::Tensor weight = at::zeros({3, 8});
  weight[1].fill_(1e-42);
  weight[2].fill_(-2);
  const QuantizedWeight quantized = quantize_weight(weight, "w");
  const at::Tensor back = expand(quantized, at::kFloat);
  EXPECT_TRUE(at::equal(back[0], weight[0]));
  EXPECT_LT(back[1].abs().max().item<float>(), 1e-37F);
  EXPECT_TRUE(at::allclose(back[2], weight[2], 1e-6));
  EXPECT_TRUE(quantized.scales.gt(0).all().item<bool>());
  EXPECT_EQ(expand(quantized, at::kBFloat16).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace tanren
