#include "tanren/ops/batch_norm.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

struct Normed {
  at::Tensor y, mean, var;
  std::vector<at::Tensor> gradients;  // of x, weight, bias and the residual
};

// Batch norm of images of `type`, computed in `computed`; in double by torch's own operators.
Normed normed(std::array<int64_t, 4> sizes, at::ScalarType type, at::ScalarType computed, bool relu,
              bool with_residual) {
  at::manual_seed(3);
  const int64_t channels = sizes[1];
  const auto wide = computed == at::kDouble ? at::kDouble : at::kFloat;
  const auto images = [&](double mean) {
    return (at::randn(sizes) + mean)
        .to(type)
        .to(computed)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .requires_grad_();
  };
  std::vector<at::Tensor> leaves = {images(5), at::randn({channels}).to(wide).requires_grad_(),
                                    at::randn({channels}).to(wide).requires_grad_()};
  const at::Tensor residual = images(0);
  Normed result;
  result.mean = at::ones({channels}, wide);
  result.var = at::ones({channels}, wide) * 2;
  if (with_residual) leaves.push_back(residual);
  result.y = batch_norm(leaves[0], {.weight = leaves[1],
                                    .bias = leaves[2],
                                    .running_mean = result.mean,
                                    .running_var = result.var,
                                    .momentum = 0.3,
                                    .relu = relu,
                                    .residual = with_residual ? residual : at::Tensor()});
  const at::Tensor seeds = at::arange(result.y.numel(), at::kDouble).sin_().view(result.y.sizes());
  result.gradients = torch::autograd::grad({result.y}, leaves, {seeds.to(result.y.scalar_type())});
  return result;
}

double off(const at::Tensor& own, const at::Tensor& expected) {
  return ((own.to(at::kDouble) - expected.to(at::kDouble)).norm() / expected.norm().to(at::kDouble))
      .item<double>();
}

TEST(BatchNorm, in_channels_last_equals_torchs_in_fp64) {
  for (const std::array<int64_t, 4> sizes :
       {std::array<int64_t, 4>{2, 3, 2, 2}, std::array<int64_t, 4>{3, 37, 9, 11},
        std::array<int64_t, 4>{2, 64, 20, 20}}) {
    for (const auto& [type, bound] :
         {std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 0.01}}) {
      for (const bool relu : {false, true}) {
        for (const bool with_residual : {false, true}) {
          const Normed own = normed(sizes, type, type, relu, with_residual);
          const Normed expected = normed(sizes, type, at::kDouble, relu, with_residual);
          EXPECT_EQ(own.y.scalar_type(), type);
          EXPECT_TRUE(own.y.is_contiguous(at::MemoryFormat::ChannelsLast));
          EXPECT_LT(off(own.y, expected.y), bound);
          EXPECT_LT(off(own.mean, expected.mean), 1e-5);
          EXPECT_LT(off(own.var, expected.var), 1e-5);
          ASSERT_EQ(own.gradients.size(), expected.gradients.size());
          for (size_t i = 0; i < own.gradients.size(); ++i) {
            EXPECT_LT(off(own.gradients[i], expected.gradients[i]), 5 * bound)
                << sizes[1] << " " << type << " relu " << relu << " residual " << with_residual
                << " gradient " << i;
          }
        }
      }
    }
  }
}

TEST(BatchNorm, any_number_of_threads_gives_the_same_bits) {
  const int before = at::get_num_threads();
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    return normed({4, 32, 40, 40}, at::kBFloat16, at::kBFloat16, true, true);
  };
  const Normed one = run(1), three = run(3);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.y, three.y));
  EXPECT_TRUE(at::equal(one.var, three.var));
  for (size_t i = 0; i < one.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(one.gradients[i], three.gradients[i])) << i;
  }
}

TEST(BatchNorm, a_nan_stays_visible_behind_relu) {
  at::Tensor x = at::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  x[0][1][0][0] = std::nan("");
  const at::Tensor weight = at::ones({3}), bias = at::zeros({3});
  const at::Tensor y = batch_norm(x, {.weight = weight,
                                      .bias = bias,
                                      .running_mean = at::zeros({3}),
                                      .running_var = at::ones({3}),
                                      .relu = true});
  EXPECT_TRUE(y.select(1, 1).isnan().all().item<bool>());
  EXPECT_FALSE(y.select(1, 0).isnan().any().item<bool>());
}

TEST(BatchNorm, in_channels_last_refuses_second_derivatives) {
  const at::Tensor x =
      at::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const at::Tensor y = batch_norm(x, {.weight = at::ones({3}),
                                      .bias = at::zeros({3}),
                                      .running_mean = at::zeros({3}),
                                      .running_var = at::ones({3})});
  EXPECT_THROW(torch::autograd::grad({y.pow(2).sum()}, {x}, {}, true, true), Error);
}

}  // namespace
}  // namespace tanren
