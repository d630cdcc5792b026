#include "tanren/model/losses.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

using LossFunction =
    std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)>;

struct Case {
  std::string name;
  LossFunction loss;
  at::Tensor outputs;
  at::Tensor targets;
};

std::vector<Case> cases() {
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor values = at::randn({6, 3}, options);
  return {
      {"cross_entropy", [](auto& o, auto& t) { return cross_entropy(o, t).sum; },
       at::randn({6, 4}, options), at::randint(4, {6}, at::kLong)},
      {"smoothed", [](auto& o, auto& t) { return cross_entropy(o, t, 0.2).sum; },
       at::randn({6, 4}, options), at::randint(4, {6}, at::kLong)},
      {"pixels", [](auto& o, auto& t) { return cross_entropy(o, t).sum; },
       at::randn({6, 4, 3, 2}, options), at::randint(4, {6, 3, 2}, at::kLong)},
      {"bce", [](auto& o, auto& t) { return bce(o, t).sum; }, at::randn({6, 3}, options),
       at::rand({6, 3}, options)},
      {"bce_classes", [](auto& o, auto& t) { return bce(o, t).sum; }, at::randn({6, 1}, options),
       at::randint(2, {6}, at::kLong)},
      {"mse", [](auto& o, auto& t) { return mse(o, t).sum; }, at::randn({6, 3}, options), values},
      {"l1", [](auto& o, auto& t) { return l1(o, t).sum; }, at::randn({6, 3}, options), values},
      {"mse_of_one", [](auto& o, auto& t) { return mse(o, t).sum; }, at::randn({6, 1}, options),
       at::randn({6}, options)},
  };
}

TEST(Losses, outputs_that_do_not_fit_the_labels_are_named_with_shapes) {
  try {
    mse(at::zeros({4, 3}), at::zeros({4}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[4, 3]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[4]"), std::string::npos) << error.what();
  }
  EXPECT_THROW(l1(at::zeros({2, 3}), at::zeros({3, 2})), Error);
}

TEST(Losses, have_the_values_of_their_definitions) {
  const at::Tensor logits = at::tensor({1.0, 2.0, 0.5, -1.0}, at::kDouble).reshape({2, 2});
  const double first = std::log(1 + std::exp(1.0));   // class 0 of (1, 2)
  const double second = std::log(1 + std::exp(1.5));  // class 1 of (0.5, -1)
  const Term term = cross_entropy(logits, at::tensor({0, 1}, at::kLong));
  EXPECT_NEAR(term.sum.item<double>(), first + second, 1e-12);
  EXPECT_EQ(term.name, "cross_entropy");
  EXPECT_EQ(term.count_name, "samples");
  const at::Tensor targets = at::tensor({0.0, 1.0, 2.0, 1.0}, at::kDouble).reshape({2, 2});
  EXPECT_NEAR(mse(logits, targets).sum.item<double>(), (1 + 1) / 2.0 + (2.25 + 4) / 2.0, 1e-12);
  EXPECT_NEAR(l1(logits, targets).sum.item<double>(), (1 + 1) / 2.0 + (1.5 + 2) / 2.0, 1e-12);
  EXPECT_NEAR(bce(logits.slice(1, 0, 1), at::tensor({1, 0})).sum.item<double>(),
              std::log(1 + std::exp(-1.0)) + std::log(1 + std::exp(0.5)), 1e-12);
}

TEST(Losses, of_parts_add_up_to_the_loss_of_the_whole) {
  for (const Case& test : cases()) {
    const double whole = test.loss(test.outputs, test.targets).item<double>();
    const double parts = (test.loss(test.outputs.slice(0, 0, 1), test.targets.slice(0, 0, 1)) +
                          test.loss(test.outputs.slice(0, 1, 6), test.targets.slice(0, 1, 6)))
                             .item<double>();
    EXPECT_NEAR(parts, whole, 1e-12 * std::abs(whole)) << test.name;
  }
}

TEST(Losses, gradients_equal_finite_differences) {
  for (const Case& test : cases()) {
    const at::Tensor leaf = test.outputs.clone().requires_grad_();
    const at::Tensor gradient =
        torch::autograd::grad({test.loss(leaf, test.targets)}, {leaf})[0].reshape({-1});
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      const at::Tensor up = test.outputs.clone();
      const at::Tensor down = test.outputs.clone();
      up.view({-1})[i] += 1e-6;
      down.view({-1})[i] -= 1e-6;
      const double slope =
          (test.loss(up, test.targets) - test.loss(down, test.targets)).item<double>() / 2e-6;
      EXPECT_NEAR(gradient[i].item<double>(), slope, 1e-7) << test.name << " " << i;
    }
  }
}

TEST(Losses, of_16_bit_outputs_are_computed_in_fp32_and_fp64_stays) {
  for (const Case& test : cases()) {
    EXPECT_EQ(test.loss(test.outputs, test.targets).scalar_type(), at::kDouble) << test.name;
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      const at::Tensor outputs = test.outputs.to(dtype);
      const at::Tensor loss = test.loss(outputs, test.targets);
      EXPECT_EQ(loss.scalar_type(), at::kFloat) << test.name;
      const at::Tensor exact = test.loss(outputs.to(at::kDouble), test.targets);
      EXPECT_NEAR(loss.item<double>(), exact.item<double>(), 1e-5) << test.name;
    }
  }
}

}  // namespace
}  // namespace tanren
