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

}  // namespace
}  // namespace tanren
