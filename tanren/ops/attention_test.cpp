#include "tanren/ops/attention.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>

namespace tanren {
namespace {

constexpr uint64_t kAttentionSite = site_id("h.0.attn");

struct AttentionCase {
  int64_t n, length, heads, width;
};
// Shorter than a group of draws, one block and its edges, several blocks.
const std::vector<AttentionCase> kAttentionCases = {
    {2, 1, 1, 4}, {3, 7, 2, 6}, {2, 64, 3, 12}, {1, 128, 1, 8}, {2, 131, 2, 16}, {1, 300, 2, 8}};

at::Tensor qkv_of(const AttentionCase& c, at::ScalarType type) {
  at::manual_seed(c.length);
  return at::randn({c.n, c.length, 3 * c.width}, at::kDouble).to(type);
}

// {output, gradient of qkv}; the output's gradient differs from element to element.
std::pair<at::Tensor, at::Tensor> attended(const at::Tensor& qkv, int64_t heads, double p,
                                           bool reference) {
  const RandomScope scope(5, 2, at::arange(100, 100 + qkv.size(0)));
  const at::Tensor leaf = qkv.detach().clone().requires_grad_();
  const at::Tensor out = reference
                             ? causal_attention_reference(leaf, heads, p, kAttentionSite, true)
                             : causal_attention(leaf, heads, p, kAttentionSite, true);
  const at::Tensor seeds =
      at::arange(out.numel(), at::kDouble).sin_().view(out.sizes()).to(out.scalar_type());
  const at::Tensor gradient = torch::autograd::grad({out}, {leaf}, {seeds})[0];
  return {out.detach(), gradient};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expected = b.to(at::kDouble);
  return ((a.to(at::kDouble) - expected).norm() / (expected.norm() + 1e-30)).item<double>();
}

TEST(Attention, outside_a_scope_or_with_another_number_of_samples_is_an_error) {
  const at::Tensor qkv = at::randn({2, 5, 12});
  EXPECT_THROW(causal_attention(qkv, 2, 0.1, kAttentionSite, true), Error);
  const RandomScope scope(5, 2, at::arange(3));
  EXPECT_THROW(causal_attention(qkv, 2, 0.1, kAttentionSite, true), Error);
}

TEST(Attention, equals_the_reference_in_fp64_and_fp32) {
  for (const auto& c : kAttentionCases) {
    for (const double p : {0.0, 0.3}) {
      const at::Tensor exact = qkv_of(c, at::kDouble);
      const auto [out, gradient] = attended(exact, c.heads, p, true);
      const auto [own, own_gradient] = attended(exact, c.heads, p, false);
      EXPECT_LT(difference(own, out), 1e-12) << c.length << " " << p;
      EXPECT_LT(difference(own_gradient, gradient), 1e-8) << c.length << " " << p;
      const auto [single, single_gradient] = attended(exact.to(at::kFloat), c.heads, p, false);
      EXPECT_LT(difference(single, out), 1e-5) << c.length << " " << p;
      EXPECT_LT(difference(single_gradient, gradient), 1e-4) << c.length << " " << p;
    }
  }
}

TEST(Attention, gradient_equals_finite_differences_in_fp64) {
  const AttentionCase c{2, 5, 2, 4};
  const at::Tensor qkv = qkv_of(c, at::kDouble);
  const at::Tensor gradient = attended(qkv, 2, 0.3, false).second.reshape({-1});
  const auto value = [&](const at::Tensor& x) {
    const at::Tensor out = attended(x, 2, 0.3, false).first;
    return (out * at::arange(out.numel(), at::kDouble).sin_().view(out.sizes()))
        .sum()
        .item<double>();
  };
  for (int64_t i = 0; i < qkv.numel(); ++i) {
    at::Tensor up = qkv.clone(), down = qkv.clone();
    up.view({-1})[i] += 1e-5;
    down.view({-1})[i] -= 1e-5;
    EXPECT_NEAR(gradient[i].item<double>(), (value(up) - value(down)) / 2e-5, 1e-8) << i;
  }
}

TEST(Attention, in_16_bits_stays_in_16_bits_and_close_to_fp64) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& c : kAttentionCases) {
      const at::Tensor qkv = qkv_of(c, type);
      const auto [out, gradient] = attended(qkv.to(at::kDouble), c.heads, 0.3, true);
      const auto [own, own_gradient] = attended(qkv, c.heads, 0.3, false);
      EXPECT_EQ(own.scalar_type(), type);
      EXPECT_EQ(own_gradient.scalar_type(), type);
      EXPECT_LT(difference(own, out), 0.01) << c.length;
      EXPECT_LT(difference(own_gradient, gradient), 0.02) << c.length;
    }
  }
}

TEST(Attention, under_autocast_computes_in_the_dtype_it_is_given) {
  const at::Tensor qkv = qkv_of({2, 20, 2, 8}, at::kFloat);
  const auto plain = attended(qkv, 2, 0.3, false);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto cast = attended(qkv, 2, 0.3, false);
  const auto half = attended(qkv.to(at::kBFloat16), 2, 0.3, false);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(half.first.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(cast.first, plain.first));
  EXPECT_TRUE(at::equal(cast.second, plain.second));
}

TEST(Attention, any_split_order_and_thread_count_draws_the_same) {
  const at::Tensor qkv = qkv_of({4, 70, 2, 8}, at::kFloat);
  const auto run = [&](const at::Tensor& rows, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const RandomScope scope(5, 2, rows + 100);
    at::Tensor out = causal_attention(qkv.index({rows}), 2, 0.3, kAttentionSite, true);
    at::set_num_threads(before);
    return out;
  };
  const at::Tensor whole = run(at::arange(4), 1);
  EXPECT_TRUE(at::equal(run(at::arange(4), 3), whole));
  EXPECT_TRUE(at::equal(at::cat({run(at::arange(1), 2), run(at::arange(1, 4), 2)}), whole));
  const at::Tensor order = at::tensor({2, 0, 3, 1}, at::kLong);
  EXPECT_TRUE(at::equal(run(order, 2), whole.index({order})));
}

// The weights of causal attention after dropout, [n, heads, T, T], for the first `length` tokens of
// the same samples.
at::Tensor causal_weights(int64_t length, at::ScalarType type, bool reference) {
  constexpr int64_t kSamples = 2, kHeads = 3, kSize = 300;
  at::manual_seed(3);
  const at::Tensor parts = at::randn({kSamples, kSize, 3, kHeads, kSize}, at::kDouble) * 0.2;
  // Token t's value is the t-th unit vector, so that its weight is element t of an output.
  parts.select(2, 2).copy_(at::eye(kSize, at::kDouble).view({kSize, 1, kSize}));
  const at::Tensor qkv = parts.narrow(1, 0, length).flatten(2).to(type);
  const RandomScope scope(5, 2, at::arange(100, 100 + kSamples));
  const at::Tensor out = reference ? causal_attention_reference(qkv, kHeads, 0.3, 7, true)
                                   : causal_attention(qkv, kHeads, 0.3, 7, true);
  return out.view({kSamples, length, kHeads, kSize}).transpose(1, 2).narrow(3, 0, length);
}

TEST(Attention, tokens_after_a_samples_own_change_no_draw) {
  const at::Tensor longest = causal_weights(300, at::kDouble, true);
  for (const int64_t length : {1, 7, 60, 64, 70, 131, 300}) {
    const at::Tensor expected = longest.narrow(2, 0, length).narrow(3, 0, length);
    for (const bool reference : {true, false}) {
      const at::Tensor weights = causal_weights(length, at::kDouble, reference);
      EXPECT_LT((weights - expected).abs().max().item<double>(), 1e-15) << length << reference;
      for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        if (reference && type != at::kDouble) continue;
        EXPECT_TRUE(at::equal(causal_weights(length, type, reference) != 0, expected != 0))
            << length << reference << type;
      }
    }
  }
}

TEST(Attention, drops_the_promised_share_of_weights_and_keeps_the_mean) {
  // All scores are equal and all values 1, so a row's output is its kept share, scaled.
  at::Tensor qkv = at::zeros({8, 256, 6});
  qkv.narrow(2, 4, 2).fill_(1);
  const RandomScope scope(5, 2, at::arange(8));
  const at::Tensor out = causal_attention(qkv, 2, 0.25, kAttentionSite, true);
  EXPECT_NEAR(out.mean().item<double>(), 1, 0.02);
  const double variance = out.select(1, 255).var().item<double>();
  EXPECT_NEAR(variance, 0.25 / 0.75 / 256, 0.8 * 0.25 / 0.75 / 256);
  EXPECT_FALSE(at::equal(out.select(2, 0), out.select(2, 1)));  // heads draw their own
}

TEST(Attention, a_nan_stays_visible) {
  at::Tensor qkv = at::randn({1, 40, 12});
  qkv[0][3][0] = std::nan("");
  const auto [out, gradient] = attended(qkv, 2, 0.3, false);
  EXPECT_TRUE(out[0][3].isnan().any().item<bool>());
  EXPECT_TRUE(gradient.isnan().any().item<bool>());
}

TEST(Attention, with_dropout_refuses_second_derivatives) {
  const RandomScope scope(5, 2, at::arange(1));
  const at::Tensor qkv = at::randn({1, 4, 12}).requires_grad_();
  const at::Tensor out = causal_attention(qkv, 2, 0.3, kAttentionSite, true);
  EXPECT_THROW(torch::autograd::grad({out.sum()}, {qkv}, {}, true, true), Error);
}

}  // namespace
}  // namespace tanren
