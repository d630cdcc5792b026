#include "tanren/dry/forward_work.h"

#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(ForwardWork, views_and_what_is_no_forward_do_not_count) {
  ForwardWork work;
  const DryScope dry(&work);
  const at::Tensor large = at::empty({1000, 64}).requires_grad_();
  work.largest = {};
  large.t();
  large.view({64, 1000}).narrow(0, 0, 32);
  {
    const at::NoGradGuard no_gradients;
    at::mm(large, large.t());
  }
  EXPECT_EQ(work.largest.elements, 0);
  EXPECT_EQ(work.largest.multiply_adds, 0);
}

TEST(ForwardWork, are_those_of_the_largest_result_and_the_largest_product) {
  ForwardWork work;
  const DryScope dry(&work);
  const at::Tensor x = at::empty({32, 64}), first = at::empty({128, 64}).requires_grad_(),
                   second = at::empty({10, 128}).requires_grad_();
  work.largest = {};
  at::linear(at::relu(at::linear(x, first)), second).sum().backward();
  EXPECT_EQ(work.largest.elements, 32 * 128);
  EXPECT_EQ(work.largest.multiply_adds, 32 * 64 * 128);
  work.largest = {};
  EXPECT_EQ(work.largest.elements, 0);
}

TEST(ForwardWork, the_backward_has_a_product_for_each_factor_that_needs_a_gradient) {
  ForwardWork work;
  const DryScope dry(&work);
  const at::Tensor x = at::empty({32, 64}), first = at::empty({128, 64}).requires_grad_(),
                   bias = at::empty({128}).requires_grad_(), frozen = at::empty({10, 128});
  const at::Tensor y = at::linear(x, first, bias);
  EXPECT_EQ(work.backward_multiply_adds, 32 * 64 * 128) << "the data need no gradient";
  work.backward_multiply_adds = 0;
  at::linear(y, frozen);
  EXPECT_EQ(work.backward_multiply_adds, 32 * 128 * 10) << "nor does a frozen weight";
  work.backward_multiply_adds = 0;
  at::linear(y, at::empty({10, 128}).requires_grad_());
  EXPECT_EQ(work.backward_multiply_adds, 2 * 32 * 128 * 10);
  at::linear(x, frozen.narrow(1, 0, 64));
  EXPECT_EQ(work.backward_multiply_adds, 2 * 32 * 128 * 10);
}

TEST(ForwardWork, a_recurrent_layer_counts_all_its_steps_and_is_no_single_product) {
  ForwardWork work;
  const DryScope dry(&work);
  const int64_t n = 3, tokens = 7, in = 8, hidden = 16;
  const at::Tensor x = at::empty({n, tokens, in}), zero = at::empty({1, n, hidden});
  const std::vector<std::vector<int64_t>> shapes = {
      {4 * hidden, in}, {4 * hidden, hidden}, {4 * hidden}, {4 * hidden}};
  std::vector<at::Tensor> weights;
  for (const auto& sizes : shapes) weights.push_back(at::empty(sizes).requires_grad_());
  at::lstm(x, {zero, zero}, weights, /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0.0,
           /*train=*/false, /*bidirectional=*/false, /*batch_first=*/true);
  int64_t all = 0;
  for (const auto& [block, count] : work.multiply_adds) all += count;
  EXPECT_EQ(all, n * tokens * 4 * hidden * (in + hidden));
  EXPECT_LT(work.largest.multiply_adds, all);
}

}  // namespace
}  // namespace tanren
