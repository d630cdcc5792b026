// A user's own loop that sets gradients to none, as torch's zero_grad() does. The gradients that it
// measures and clips must be those that the optimizer applies. Issue 22.
#include "tests/own/own_program.h"

#include "tanren/optimizer/clip.h"
#include "tanren/parallel/gradients.h"
#include "tanren/precision/measure.h"

#include <gtest/gtest.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tanren::testing {
namespace {

constexpr double kScale = 1024, kMaxNorm = 0.1;

at::Tensor summed_loss(OwnNet& net, const std::vector<int64_t>& indices) {
  const Batch batch = OwnPoints(OwnPoints::Spoil()).collate(indices).batch;
  return cross_entropy(net.forward(batch["inputs"]), batch["labels"]).sum;
}

// Weights after five clipped updates of two microbatches each.
at::Tensor looped(const std::function<void(OwnNet&, Gradients&)>& zero) {
  at::manual_seed(3);
  OwnNet net;
  Gradients gradients(net.parameters());
  for (int64_t i = 0; i < 5; ++i) {
    zero(net, gradients);
    (summed_loss(net, {i, i + 1}) * kScale).backward();
    (summed_loss(net, {i + 2, i + 3}) * kScale).backward();
    const Measured measured = unscale_and_measure(gradients.flat(), kScale);
    EXPECT_GT(measured.norm.item<double>(), kMaxNorm) << "clipping is to do something";
    clip_norm_(gradients.flat(), kMaxNorm);
    const at::NoGradGuard no_grad;
    double square = 0;
    for (at::Tensor& parameter : net.parameters()) {
      square += parameter.grad().square().sum().item<double>();
      parameter.sub_(parameter.grad());
    }
    EXPECT_LT(square, kMaxNorm * kMaxNorm * 1.001) << "what reaches the weights is clipped";
  }
  std::vector<at::Tensor> all;
  for (const auto& parameter : net.parameters()) all.push_back(parameter.detach().flatten());
  return at::cat(all);
}

TEST(OwnLoop, may_set_gradients_to_none_instead_of_0) {
  const at::Tensor in_place = looped([](OwnNet&, Gradients& gradients) { gradients.zero(); });
  EXPECT_TRUE(at::equal(looped([](OwnNet& net, Gradients&) { net.zero_grad(); }), in_place));
  EXPECT_TRUE(at::equal(
      looped([](OwnNet& net, Gradients&) { net.zero_grad(/*set_to_none=*/false); }), in_place));
  EXPECT_TRUE(at::equal(looped([](OwnNet& net, Gradients& gradients) {
                          gradients.zero();
                          net.zero_grad();
                        }),
                        in_place));
}

TEST(OwnLoop, measures_nothing_where_gradients_were_set_to_none_after_backward) {
  OwnNet net;
  const Gradients gradients(net.parameters());
  summed_loss(net, {0, 1}).backward();
  net.zero_grad();
  EXPECT_EQ(unscale_and_measure(gradients.flat(), 1).norm.item<double>(), 0);
  for (const auto& parameter : net.parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_TRUE(parameter.grad().is_alias_of(gradients.flat()[0]));
    EXPECT_EQ(parameter.grad().count_nonzero().item<int64_t>(), 0);
  }
}

// As in torch, an optimizer does not change a parameter whose gradient is none.
TEST(OwnLoop, reaches_no_parameter_whose_gradient_it_set_to_none) {
  OwnNet net;
  const Gradients gradients(net.parameters());
  summed_loss(net, {0, 1}).backward();
  ASSERT_EQ(gradients.active(), nullptr) << "all were reached";
  net.zero_grad();
  net.head->forward(at::ones({2, 8})).sum().backward();
  (void)gradients.flat();
  ASSERT_NE(gradients.active(), nullptr);
  const auto named = net.named_parameters();
  for (size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ((*gradients.active())[i] != 0, named[i].key().starts_with("head.")) << named[i].key();
  }
}

TEST(OwnLoop, measures_gradients_that_it_put_in_place_of_others) {
  OwnNet net;
  const Gradients gradients(net.parameters());
  summed_loss(net, {0, 1}).backward();
  int64_t elements = 0;
  for (at::Tensor& parameter : net.parameters()) {
    parameter.mutable_grad() = at::full_like(parameter, 2);
    elements += parameter.numel();
  }
  const at::Tensor norm = unscale_and_measure(gradients.owned(), 2).norm;
  EXPECT_NEAR(norm.item<double>(), std::sqrt(static_cast<double>(elements)), 1e-4);
  for (const auto& parameter : net.parameters()) {
    EXPECT_TRUE(parameter.grad().is_alias_of(gradients.flat()[0]));
    EXPECT_TRUE(parameter.grad().eq(1).all().item<bool>()) << "unscaled";
  }
}

}  // namespace
}  // namespace tanren::testing
