#include "tanren/ops/masked_attention.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

constexpr uint64_t kMaskedSite = site_id("layer.0.attention.self");

struct MaskedCase {
  int64_t n, length, heads, width;
};
// Shorter than a group of draws, odd, one block and its edges, several blocks.
const std::vector<MaskedCase> kMaskedCases = {{2, 1, 1, 4},   {3, 7, 2, 8},    {2, 64, 3, 12},
                                              {1, 128, 1, 8}, {2, 131, 2, 16}, {1, 300, 2, 8}};

// 1 for all tokens of sample 0, and for ever fewer tokens of the later samples.
at::Tensor padding_mask_of(const MaskedCase& c) {
  at::Tensor mask = at::ones({c.n, c.length}, at::kLong);
  for (int64_t i = 1; i < c.n; ++i)
    mask[i].narrow(0, c.length / (i + 1), c.length - c.length / (i + 1)).zero_();
  return mask;
}

// {output, gradients of q, k and v}; the output's gradient differs from element to element.
std::vector<at::Tensor> masked_attended(const MaskedCase& c, at::ScalarType type,
                                        at::ScalarType rounded, const at::Tensor& mask, double p,
                                        bool reference) {
  const RandomScope scope(5, 2, at::arange(100, 100 + c.n));
  at::manual_seed(c.length);
  std::vector<at::Tensor> in;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor drawn = at::randn({c.n, c.length, c.width}, at::kDouble);
    in.push_back(drawn.to(rounded).to(type).requires_grad_());
  }
  const at::Tensor bias = mask.defined() ? padding_bias(mask, type) : mask;
  const at::Tensor out =
      reference ? masked_attention_reference(in[0], in[1], in[2], bias, c.heads, p, kMaskedSite)
                : masked_attention(in[0], in[1], in[2], bias, c.heads, p, kMaskedSite, true);
  const at::Tensor seeds =
      at::arange(out.numel(), at::kDouble).sin_().view(out.sizes()).to(out.scalar_type());
  auto all = torch::autograd::grad({out}, in, {seeds});
  all.insert(all.begin(), out.detach());
  return all;
}

double masked_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expected = b.to(at::kDouble);
  return ((a.to(at::kDouble) - expected).norm() / (expected.norm() + 1e-6)).item<double>();
}

TEST(MaskedAttention, with_another_number_of_samples_than_the_scope_is_an_error) {
  const at::Tensor x = at::randn({2, 5, 8});
  const RandomScope scope(5, 2, at::arange(3));
  EXPECT_THROW(masked_attention(x, x, x, {}, 2, 0.1, kMaskedSite, true), Error);
}

TEST(MaskedAttention, equals_the_reference_in_every_dtype_with_and_without_padding) {
  const std::vector<std::pair<at::ScalarType, double>> dtypes = {
      {at::kDouble, 1e-7}, {at::kFloat, 1e-4}, {at::kBFloat16, 0.02}, {at::kHalf, 0.02}};
  for (const auto& c : kMaskedCases) {
    for (const at::Tensor& mask : {at::Tensor(), padding_mask_of(c)}) {
      for (const auto& [type, bound] : dtypes) {
        const auto expected = masked_attended(c, at::kDouble, type, mask, 0.3, true);
        const auto own = masked_attended(c, type, type, mask, 0.3, false);
        for (size_t i = 0; i < own.size(); ++i) {
          EXPECT_EQ(own[i].scalar_type(), type);
          // A single token's weight is 1, so the gradients of q and k are 0 up to rounding.
          if (c.length == 1 && (i == 1 || i == 2)) continue;
          EXPECT_LT(masked_difference(own[i], expected[i]), bound)
              << c.length << " " << mask.defined() << " " << type << " tensor " << i;
        }
      }
    }
  }
}

TEST(MaskedAttention, padding_gets_no_weight_and_no_gradient) {
  const MaskedCase c{2, 20, 2, 8};
  const at::Tensor mask = padding_mask_of(c);
  const auto all = masked_attended(c, at::kBFloat16, at::kBFloat16, mask, 0.3, false);
  for (const size_t i : {2, 3}) {  // of k and v
    EXPECT_EQ(all[i][1].narrow(0, 10, 10).abs().max().item<double>(), 0);
    EXPECT_GT(all[i][1].narrow(0, 0, 10).abs().max().item<double>(), 0);
  }
}

// The weights after dropout, [n, heads, T, T], of samples of 5, 100 and 70 tokens, padded or cut to
// `length`.
at::Tensor masked_weights(int64_t length, at::ScalarType type, bool reference) {
  constexpr int64_t kSamples = 3, kHeads = 2, kSize = 300;
  at::manual_seed(3);
  const at::Tensor parts = at::randn({3, kSamples, kSize, kHeads, kSize}, at::kDouble) * 0.2;
  // Token t's value is the t-th unit vector, so that its weight is element t of an output.
  parts[2].copy_(at::eye(kSize, at::kDouble).view({kSize, 1, kSize}));
  const at::Tensor x = parts.narrow(2, 0, length).flatten(3).to(type);
  const at::Tensor tokens = at::tensor({5, 100, 70}, at::kLong).unsqueeze(1);
  const at::Tensor bias = padding_bias(at::arange(length).unsqueeze(0) < tokens, type);
  const RandomScope scope(5, 2, at::arange(100, 100 + kSamples));
  const at::Tensor out = reference
                             ? masked_attention_reference(x[0], x[1], x[2], bias, kHeads, 0.3, 7)
                             : masked_attention(x[0], x[1], x[2], bias, kHeads, 0.3, 7, true);
  return out.view({kSamples, length, kHeads, kSize}).transpose(1, 2).narrow(3, 0, length);
}

TEST(MaskedAttention, more_padding_changes_no_draw) {
  const at::Tensor longest = masked_weights(300, at::kDouble, true);
  for (const int64_t length : {100, 104, 128, 129, 300}) {
    const at::Tensor expected = longest.narrow(2, 0, length).narrow(3, 0, length);
    for (const bool reference : {true, false}) {
      const at::Tensor weights = masked_weights(length, at::kDouble, reference);
      EXPECT_LT((weights - expected).abs().max().item<double>(), 1e-15) << length << reference;
      for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        if (reference && type != at::kDouble) continue;
        EXPECT_TRUE(at::equal(masked_weights(length, type, reference) != 0, expected != 0))
            << length << reference << type;
      }
    }
  }
}

TEST(MaskedAttention, a_sample_of_padding_alone_counts_each_token_the_same) {
  const MaskedCase c{2, 33, 1, 8};
  const at::Tensor mask = at::zeros({2, 33}, at::kLong);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto expected = masked_attended(c, at::kFloat, type, mask, 0.3, true);
    const auto own = masked_attended(c, type, type, mask, 0.3, false);
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_LT(masked_difference(own[i], expected[i]), 0.02) << i;
  }
}

}  // namespace
}  // namespace tanren
