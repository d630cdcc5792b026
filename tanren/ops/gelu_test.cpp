#include "tanren/ops/gelu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

TEST(Gelu, in_bf16_is_the_exact_value_rounded_once) {
  // Every finite bf16 number.
  const at::Tensor all = at::arange(0, 65536).to(at::kShort).view(at::kBFloat16);
  const at::Tensor x = all.masked_select(all.isfinite()).requires_grad_();
  const at::Tensor exact = x.detach().to(at::kDouble).requires_grad_();
  // x times the logistic function of 2u is x (1 + tanh u) / 2 without the cancellation.
  const at::Tensor u = std::sqrt(2 / M_PI) * (exact + 0.044715 * exact.pow(3));
  const at::Tensor y = gelu_tanh(x), expected = exact * at::sigmoid(2 * u);
  const at::Tensor slope = torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0];
  const at::Tensor slope_expected =
      torch::autograd::grad({expected}, {exact}, {at::ones_like(expected)})[0];
  // The bound is half a step of bf16, plus float's error for results near 0.
  const auto near = [](const at::Tensor& got, const at::Tensor& wanted, double least) {
    const at::Tensor error = (got.to(at::kDouble) - wanted).abs();
    const at::Tensor allowed = wanted.abs() * 0x1.04p-8 + least;
    return error.le(allowed).logical_or(error.isnan()).all().item<bool>();
  };
  const at::Tensor normal = x.detach().abs().lt(1e18);
  EXPECT_TRUE(near(y.masked_select(normal), expected.masked_select(normal), 1e-36));
  EXPECT_TRUE(near(slope.masked_select(normal), slope_expected.masked_select(normal), 1e-6));
  EXPECT_FALSE(y.masked_select(normal).isnan().any().item<bool>());
  EXPECT_FALSE(slope.masked_select(x.detach().abs().lt(1e9)).isnan().any().item<bool>());
}

TEST(Gelu, keeps_shapes_that_are_not_contiguous_and_a_nan) {
  const at::Tensor x = at::randn({5, 7}).to(at::kBFloat16).t();
  EXPECT_TRUE(at::allclose(gelu_tanh(x), at::gelu(x, "tanh"), 0.01, 1e-3));
  EXPECT_EQ(gelu_tanh(x).scalar_type(), at::kBFloat16);
  const at::Tensor bad = at::full({3}, std::numeric_limits<float>::quiet_NaN(), at::kBFloat16);
  EXPECT_TRUE(gelu_tanh(bad).isnan().all().item<bool>());
  EXPECT_EQ(gelu_tanh(at::empty({0, 4}, at::kBFloat16)).numel(), 0);
}

TEST(Gelu, is_torchs_in_other_dtypes_and_twice_differentiable_in_bf16) {
  const at::Tensor x = at::randn({64});
  EXPECT_TRUE(at::equal(gelu_tanh(x), at::gelu(x, "tanh")));
  const at::Tensor leaf = x.to(at::kBFloat16).requires_grad_();
  const at::Tensor first =
      torch::autograd::grad({gelu_tanh(leaf).sum()}, {leaf}, {}, true, /*create_graph=*/true)[0];
  EXPECT_TRUE(torch::autograd::grad({first.sum()}, {leaf})[0].defined());
}

}  // namespace
}  // namespace tanren
