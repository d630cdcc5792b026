#include "tanren/ops/convolution.h"

#include "tanren/base/operator_listener.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tanren {
namespace {

struct ConvolutionCase {
  int64_t in, out, kernel, stride, padding, edge;
  bool bias;
};
// Matrix products, strided products, patches with and without columns, and few input channels.
const std::vector<ConvolutionCase> kConvolutions = {
    {6, 5, 1, 1, 0, 7, true},   {8, 4, 1, 2, 0, 7, false},  {130, 6, 3, 1, 1, 5, false},
    {128, 4, 3, 2, 1, 8, true}, {128, 3, 5, 2, 0, 9, true}, {5, 6, 3, 1, 1, 6, true},
    {3, 8, 7, 2, 3, 16, false}, {7, 4, 1, 1, 1, 4, true},   {128, 2, 3, 3, 2, 4, false}};

// {output, gradients of x, weight and bias}. `plain`: at::conv2d in fp32.
std::vector<at::Tensor> convolved(const ConvolutionCase& c, bool plain) {
  at::manual_seed(c.in + c.kernel);
  std::vector<at::Tensor> leaves = {at::randn({3, c.in, c.edge, c.edge}),
                                    at::randn({c.out, c.in, c.kernel, c.kernel})};
  if (c.bias) leaves.push_back(at::randn({c.out}));
  for (auto& leaf : leaves) leaf = leaf.to(at::kBFloat16).to(at::kFloat);
  if (!plain) {
    for (auto& leaf : leaves) {
      if (leaf.dim() == 4) leaf = leaf.contiguous(at::MemoryFormat::ChannelsLast);
    }
  }
  for (auto& leaf : leaves) leaf.requires_grad_();
  const at::Tensor bias = c.bias ? leaves[2] : at::Tensor();
  at::autocast::set_autocast_enabled(at::kCPU, !plain);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor out = plain ? at::conv2d(leaves[0], leaves[1], bias, c.stride, c.padding)
                               : convolution(leaves[0], leaves[1], bias, c.stride, c.padding);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  const at::Tensor seeds =
      at::arange(out.numel(), at::kFloat).sin_().view(out.sizes()).to(at::kBFloat16);
  auto all = torch::autograd::grad({out}, leaves, {seeds.to(out.scalar_type())});
  all.insert(all.begin(), out.detach());
  return all;
}

TEST(Convolution, in_channels_last_bf16_equals_fp32_but_for_rounding) {
  for (const auto& c : kConvolutions) {
    const auto expected = convolved(c, true), own = convolved(c, false);
    EXPECT_EQ(own[0].scalar_type(), at::kBFloat16);
    EXPECT_TRUE(own[0].is_contiguous(at::MemoryFormat::ChannelsLast));
    for (size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(own[i].sizes(), expected[i].sizes());
      const double off = (own[i].to(at::kFloat) - expected[i]).norm().item<double>();
      EXPECT_LT(off, 0.01 * expected[i].norm().item<double>())
          << c.in << " kernel " << c.kernel << " stride " << c.stride << " tensor " << i;
    }
  }
}

TEST(Convolution, elsewhere_is_torchs_bit_for_bit) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 3, 6, 6}), weight = at::randn({4, 3, 3, 3}).requires_grad_();
  EXPECT_TRUE(at::equal(convolution(x, weight, {}, 2, 1), at::conv2d(x, weight, {}, 2, 1)));
}

struct ConvolutionListener final : OperatorListener {
  Answer conv2d(const at::Tensor&, const at::Tensor& weight, const Bias&,
                const Convolution& how) override {
    EXPECT_EQ(weight.scalar_type(), at::kFloat) << "the caller's, not autocast's copy";
    stride = how.stride[0];
    ++convolutions;
    return answer;
  }
  Answer addmm(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&,
               const at::Scalar&) override {
    ++products;
    return {};
  }
  Answer answer;
  int64_t stride = 0, convolutions = 0, products = 0;
};

TEST(Convolution, of_our_own_is_heard_once_and_answered_as_torchs) {
  for (const auto& c : {kConvolutions[1], kConvolutions[0], kConvolutions[5]}) {
    const auto expected = convolved(c, false);
    const auto listener = std::make_shared<ConvolutionListener>();
    const OperatorListenerScope scope(listener);
    const auto heard = convolved(c, false);
    for (size_t i = 0; i < heard.size(); ++i) EXPECT_TRUE(at::equal(heard[i], expected[i])) << i;
    EXPECT_EQ(listener->convolutions, 1) << c.in << " kernel " << c.kernel;
    EXPECT_EQ(listener->products, 0) << "what it is made of";
    EXPECT_EQ(listener->stride, c.stride);
  }
  const auto options = at::TensorOptions(at::kBFloat16);
  const at::Tensor x = at::randn({2, 6, 5, 5}, options).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weight = at::randn({4, 6, 1, 1}).requires_grad_();
  const auto listener = std::make_shared<ConvolutionListener>();
  listener->answer = at::ones({2, 4, 5, 5});
  const OperatorListenerScope scope(listener);
  EXPECT_TRUE(at::equal(convolution(x, weight, {}, 1, 0), *listener->answer));
}

TEST(Convolution, can_be_differentiated_twice) {
  for (const int64_t kernel : {1, 3}) {
    at::manual_seed(2);
    const auto options = at::TensorOptions(at::kBFloat16);
    const at::Tensor x = at::randn({2, 6, 5, 5}, options)
                             .contiguous(at::MemoryFormat::ChannelsLast)
                             .requires_grad_();
    const at::Tensor weight = at::randn({4, 6, kernel, kernel}, options).requires_grad_();
    const at::Tensor out = convolution(x, weight, {}, 1, 0);
    const at::Tensor slope = torch::autograd::grad({out.pow(2).sum()}, {x}, {}, true, true)[0];
    const at::Tensor second = torch::autograd::grad({slope.sum()}, {weight})[0];
    EXPECT_GT(second.abs().sum().item<double>(), 0);
  }
}

}  // namespace
}  // namespace tanren
