#include "tanren/base/operator_sizes.h"

#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(OperatorSizes, views_and_what_is_no_forward_do_not_count) {
  const DryScope dry;
  const at::Tensor large = at::empty({1000, 64}).requires_grad_();
  forget_dry_operator_sizes();
  large.t();
  large.view({64, 1000}).narrow(0, 0, 32);
  {
    const at::NoGradGuard no_gradients;
    at::mm(large, large.t());
  }
  EXPECT_EQ(dry_operator_sizes().elements, 0);
  EXPECT_EQ(dry_operator_sizes().multiply_adds, 0);
}

TEST(OperatorSizes, are_those_of_the_largest_result_and_the_largest_product) {
  const DryScope dry;
  const at::Tensor x = at::empty({32, 64}), first = at::empty({128, 64}).requires_grad_(),
                   second = at::empty({10, 128}).requires_grad_();
  forget_dry_operator_sizes();
  at::linear(at::relu(at::linear(x, first)), second).sum().backward();
  EXPECT_EQ(dry_operator_sizes().elements, 32 * 128);
  EXPECT_EQ(dry_operator_sizes().multiply_adds, 32 * 64 * 128);
  forget_dry_operator_sizes();
  EXPECT_EQ(dry_operator_sizes().elements, 0);
}

}  // namespace
}  // namespace tanren
