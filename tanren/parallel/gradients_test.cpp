#include "tanren/parallel/gradients.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <limits>

namespace tanren {
namespace {

TEST(Gradients, refuses_a_parameter_that_cannot_have_a_gradient) {
  EXPECT_THROW(Gradients({at::ones({2})}), Error);
  EXPECT_THROW(Gradients({at::ones({4, 4}).slice(1, 0, 2).requires_grad_()}), Error);
}

TEST(Gradients, are_views_of_one_buffer_with_the_parameters_own_layout) {
  auto plain = at::randn({3, 5}).requires_grad_();
  auto channels_last =
      at::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  Gradients gradients({plain, channels_last});
  ASSERT_EQ(gradients.flat().size(), 1u);
  EXPECT_EQ(gradients.flat()[0].numel(), plain.numel() + channels_last.numel());
  EXPECT_EQ(channels_last.grad().strides(), channels_last.strides());
  const auto storage = gradients.flat()[0].storage().data();
  (plain.pow(2).sum() + channels_last.pow(2).sum()).backward();
  EXPECT_EQ(plain.grad().storage().data(), storage);
  EXPECT_TRUE(at::allclose(plain.grad(), 2 * plain));
  EXPECT_TRUE(at::allclose(channels_last.grad(), 2 * channels_last));
}

TEST(Gradients, accumulate_over_microsteps_in_fp32_and_zero_in_place) {
  auto weight = at::zeros({4}).requires_grad_();
  Gradients gradients({weight});
  for (int i = 0; i < 3; ++i) weight.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4}, 3.0)));
  const void* data = weight.grad().data_ptr();
  gradients.zero();
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({4})));
  EXPECT_EQ(weight.grad().data_ptr(), data);
}

TEST(Gradients, say_which_parameters_backward_reached) {
  auto used = at::ones({2}).requires_grad_(), unused = at::ones({2}).requires_grad_();
  Gradients gradients({used, unused});
  used.sum().backward();
  ASSERT_NE(gradients.active(), nullptr);
  EXPECT_EQ(*gradients.active(), (std::vector<uint8_t>{1, 0}));
  unused.sum().backward();
  EXPECT_EQ(gradients.active(), nullptr);
  gradients.zero();
  EXPECT_EQ(*gradients.active(), (std::vector<uint8_t>{0, 0}));
}

TEST(Gradients, name_the_first_non_finite_one) {
  auto a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_();
  Gradients gradients({a, b});
  EXPECT_EQ(gradients.first_non_finite(), -1);
  b.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_EQ(gradients.first_non_finite(), 1);
}

}  // namespace
}  // namespace tanren
