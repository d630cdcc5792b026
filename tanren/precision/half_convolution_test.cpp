#include "tanren/precision/half_convolution.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

namespace tanren {
namespace {

std::vector<at::Tensor> gradients(at::ScalarType dtype, at::Tensor input, at::Tensor weight,
                                  at::Tensor bias) {
  input = input.to(dtype).detach().requires_grad_();
  weight = weight.to(dtype).detach().requires_grad_();
  bias = bias.to(dtype).detach().requires_grad_();
  at::conv2d(input, weight, bias, 2, 1).pow(2).sum().backward();
  return {input.grad(), weight.grad(), bias.grad()};
}

TEST(HalfConvolution, gives_the_fp32_gradients_to_half_precision_and_leaves_fp32_bitwise) {
  at::manual_seed(1);
  const auto input = at::randn({3, 4, 9, 9}), weight = at::randn({5, 4, 3, 3}) * 0.2,
             bias = at::randn({5});
  const auto before = gradients(at::kFloat, input, weight, bias);
  enable_half_convolution();
  enable_half_convolution();
  const auto after = gradients(at::kFloat, input, weight, bias);
  const auto half = gradients(at::kHalf, input, weight, bias);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::equal(before[i], after[i])) << i;
    EXPECT_EQ(half[i].scalar_type(), at::kHalf);
    const auto error = (half[i].to(at::kFloat) - before[i]).norm() / before[i].norm();
    EXPECT_LT(error.item<float>(), 5e-3) << i;
  }
}

TEST(HalfConvolution, computes_the_weight_gradient_in_fp32) {
  enable_half_convolution();
  // 4096 equal contributions of 1/2 sum to 2048: a half accumulator would stall at 1024 or 2048/2.
  const auto input = at::full({1, 1, 64, 64}, 0.5);
  const auto result = gradients(at::kHalf, input, at::full({1, 1, 1, 1}, 0.5), at::zeros({1}));
  const auto expected = gradients(at::kFloat, input, at::full({1, 1, 1, 1}, 0.5), at::zeros({1}));
  EXPECT_EQ(result[1].item<float>(), expected[1].item<float>());
}

// Without the replacement oneDNN damages the heap, with AVX2 or with AVX-512. It runs that code if
// the stride divides the sides.
TEST(HalfConvolution, of_1_by_1_with_a_stride_over_few_channels_has_the_gradients_of_fp64) {
  enable_half_convolution();
  for (const int64_t channels : {1, 4, 5, 8, 12}) {
    const auto input = at::randn({11, channels, 8, 8}), weight = at::randn({8, channels, 1, 1}),
               gradient = at::randn({11, 8, 4, 4});
    const auto of = [&](at::ScalarType type) {
      const auto last = [&](const at::Tensor& tensor) {
        return tensor.to(type).contiguous(at::MemoryFormat::ChannelsLast);
      };
      return at::convolution_backward(last(gradient), last(input), last(weight), {{8}}, {2, 2},
                                      {0, 0}, {1, 1}, false, {0, 0}, 1, {true, true, true});
    };
    const auto [gx, gw, gb] = of(at::kFloat);
    const auto [wx, ww, wb] = of(at::kDouble);
    EXPECT_LT((gx - wx).norm().item<double>(), 1e-5 * wx.norm().item<double>()) << channels;
    EXPECT_LT((gw - ww).norm().item<double>(), 1e-5 * ww.norm().item<double>()) << channels;
    EXPECT_LT((gb - wb).norm().item<double>(), 1e-5 * wb.norm().item<double>()) << channels;
  }
}

}  // namespace
}  // namespace tanren
