#include "tanren/base/operator_listener.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tanren {
namespace {

using Heard = std::vector<std::string>;

// Notes what it hears, and answers with `answer` if that is defined.
struct Noting final : OperatorListener {
  Answer note(const char* name) {
    heard.emplace_back(name);
    return answer.defined() ? Answer(answer) : Answer();
  }
  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    first = input, second = weight;
    has_bias = bias.has_value();
    return note("linear");
  }
  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    third = added, first = left, second = right;
    factors = {beta.toDouble(), alpha.toDouble()};
    return note("addmm");
  }
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    first = left, second = right;
    return note("matmul");
  }
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    first = input, second = weight;
    has_bias = bias.has_value();
    sizes = {how.stride.vec(), how.padding.vec(), how.dilation.vec(), {how.groups}};
    return note("conv2d");
  }
  Answer embedding(const at::Tensor& weight, const at::Tensor& indices) override {
    first = weight, second = indices;
    return note("embedding");
  }

  at::Tensor answer, first, second, third;
  bool has_bias = false;
  std::vector<double> factors;
  std::vector<std::vector<int64_t>> sizes;
  Heard heard;
};

struct Inputs {
  at::Tensor rows = at::randn({5, 4}), weight = at::randn({3, 4}), bias = at::randn({3});
  at::Tensor images = at::randn({2, 4, 6, 6}), kernels = at::randn({6, 2, 3, 3});
  at::Tensor table = at::randn({7, 4}), places = at::tensor({6, 0, 3}, at::kLong);
};

std::vector<at::Tensor> all_of(const Inputs& in) {
  return {at::linear(in.rows, in.weight, in.bias),
          at::addmm(in.bias, in.rows, in.weight.t(), 0.5, 2), at::matmul(in.rows, in.weight.t()),
          at::conv2d(in.images, in.kernels, {}, {2, 1}, {1, 0}, {1, 2}, 2),
          at::embedding(in.table, in.places)};
}

TEST(OperatorListener, that_does_not_answer_changes_no_number_and_hears_every_operator) {
  const Inputs in;
  const auto expected = all_of(in);
  const auto listener = std::make_shared<Noting>();
  std::vector<at::Tensor> got;
  {
    const OperatorListenerScope scope(listener);
    got = all_of(in);
  }
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
  // A linear is heard again as the product that it is made of.
  Heard once;
  for (const auto& name : listener->heard) {
    if (once.empty() || once.back() != name) once.push_back(name);
  }
  EXPECT_EQ(once, (Heard{"linear", "addmm", "matmul", "conv2d", "embedding"}));
  listener->heard.clear();
  all_of(in);
  EXPECT_TRUE(listener->heard.empty()) << "its scope has ended";
}

TEST(OperatorListener, is_told_the_arguments) {
  const Inputs in;
  const auto listener = std::make_shared<Noting>();
  const OperatorListenerScope scope(listener);
  const auto is = [](const at::TensorBase& one, const at::TensorBase& other) {
    return one.is_same(other);
  };
  listener->answer = at::zeros({1});
  at::linear(in.rows, in.weight, in.bias);
  EXPECT_TRUE(is(listener->first, in.rows) && is(listener->second, in.weight));
  EXPECT_TRUE(listener->has_bias);
  at::linear(in.rows, in.weight);
  EXPECT_FALSE(listener->has_bias);
  at::addmm(in.bias, in.rows, in.weight.t(), 0.5, 2);
  EXPECT_TRUE(is(listener->third, in.bias) && is(listener->first, in.rows));
  EXPECT_TRUE(listener->second.is_view() && is(listener->second._base(), in.weight));
  EXPECT_EQ(listener->factors, (std::vector<double>{0.5, 2}));
  at::matmul(in.rows, in.table.t());
  EXPECT_TRUE(is(listener->second._base(), in.table));
  at::conv2d(in.images, in.kernels, {}, {2, 1}, {1, 0}, {1, 2}, 2);
  EXPECT_TRUE(is(listener->first, in.images) && is(listener->second, in.kernels));
  EXPECT_EQ(listener->sizes, (std::vector<std::vector<int64_t>>{{2, 1}, {1, 0}, {1, 2}, {2}}));
  at::embedding(in.table, in.places);
  EXPECT_TRUE(is(listener->first, in.table) && is(listener->second, in.places));
}

TEST(OperatorListener, answers_in_the_operators_place) {
  const Inputs in;
  const auto listener = std::make_shared<Noting>();
  listener->answer = at::full({2}, 7.0);
  const OperatorListenerScope scope(listener);
  for (const auto& result : all_of(in)) EXPECT_TRUE(result.is_same(listener->answer));
  EXPECT_EQ(listener->heard, (Heard{"linear", "addmm", "matmul", "conv2d", "embedding"}));
  EXPECT_NE(at::add(in.rows, in.rows).dim(), 1) << "no other operator is answered";
}

// Answers a linear by the linear of twice the weight.
struct Doubling final : OperatorListener {
  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    ++calls;
    return at::linear(input, weight * 2, bias);
  }
  Answer addmm(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&,
               const at::Scalar&) override {
    ++calls;
    return {};
  }
  int calls = 0;
};

TEST(OperatorListener, does_not_hear_what_it_calls_itself_and_its_answer_has_gradients) {
  const Inputs in;
  const auto listener = std::make_shared<Doubling>();
  const at::Tensor weight = in.weight.clone().requires_grad_();
  {
    const OperatorListenerScope scope(listener);
    const at::Tensor got = at::linear(in.rows, weight, in.bias);
    EXPECT_EQ(listener->calls, 1);
    EXPECT_TRUE(at::equal(got, at::addmm(in.bias, in.rows, (in.weight * 2).t())));
    EXPECT_EQ(listener->calls, 2) << "it hears again after its answer";
    got.sum().backward();
  }
  EXPECT_TRUE(at::allclose(weight.grad(), 2 * in.rows.sum(0).expand({3, 4})));
}

struct Throwing final : OperatorListener {
  Answer matmul(const at::Tensor&, const at::Tensor&) override {
    ++calls;
    throw std::runtime_error("no");
  }
  int calls = 0;
};

TEST(OperatorListener, that_throws_hears_again) {
  const Inputs in;
  const auto listener = std::make_shared<Throwing>();
  const OperatorListenerScope scope(listener);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(at::matmul(in.rows, in.weight.t()), std::runtime_error);
  }
  EXPECT_EQ(listener->calls, 2);
  EXPECT_EQ(OperatorListenerScope::current(), listener);
}

TEST(OperatorListener, of_the_innermost_scope_is_the_one_that_hears) {
  const Inputs in;
  const auto outer = std::make_shared<Noting>(), inner = std::make_shared<Noting>();
  outer->answer = inner->answer = at::zeros({1});
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  {
    const OperatorListenerScope first(outer);
    {
      const OperatorListenerScope second(inner);
      at::matmul(in.rows, in.weight.t());
      {
        const OperatorListenerScope nobody(nullptr);
        at::linear(in.rows, in.weight);
      }
    }
    at::embedding(in.table, in.places);
    std::thread([&] { at::linear(in.rows, in.weight); }).join();
  }
  EXPECT_EQ(inner->heard, Heard{"matmul"});
  EXPECT_EQ(outer->heard, Heard{"embedding"}) << "a scope is of its thread";
  EXPECT_EQ(c10::impl::tls_local_dispatch_key_set().included_, keys.included_);
  EXPECT_EQ(OperatorListenerScope::current(), nullptr);
}

}  // namespace
}  // namespace tanren
