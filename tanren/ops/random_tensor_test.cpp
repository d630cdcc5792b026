#include "tanren/ops/random_tensor.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/ops/dropout.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

namespace tanren {
namespace {

constexpr uint64_t kNoiseSite = site_id("noise");

at::Tensor ids(std::vector<int64_t> of) { return at::tensor(of, at::kLong); }

TEST(RandomTensor, outside_a_scope_of_another_size_or_in_16_bits_is_refused) {
  EXPECT_THROW(normal({3, 4}, kNoiseSite), Error);
  const RandomScope scope(1, 1, ids({0, 1}));
  EXPECT_THROW(normal({3, 4}, kNoiseSite), Error);
  EXPECT_THROW(uniform({}, kNoiseSite), Error);
  EXPECT_THROW(uniform({2, 4}, kNoiseSite, at::kHalf), Error);
  EXPECT_EQ(uniform({2, 0}, kNoiseSite).numel(), 0);
}

TEST(RandomTensor, of_a_sample_is_the_same_in_any_company_order_and_dtype) {
  const auto draw = [](const at::Tensor& samples, at::ScalarType dtype) {
    const RandomScope scope(7, 3, samples);
    return at::cat({normal({samples.size(0), 5, 3}, kNoiseSite, dtype),
                    uniform({samples.size(0), 5, 3}, kNoiseSite, dtype)},
                   1);
  };
  const at::Tensor all = draw(ids({4, 9, 2, 31}), at::kDouble);
  EXPECT_TRUE(at::equal(draw(ids({2}), at::kDouble)[0], all[2]));
  EXPECT_TRUE(at::equal(draw(ids({31, 9}), at::kDouble)[1], all[1]));
  EXPECT_TRUE(at::equal(draw(ids({4, 9, 2, 31}), at::kFloat), all.to(at::kFloat)));
}

TEST(RandomTensor, differs_by_seed_attempt_sample_site_and_element) {
  const auto draw = [](uint64_t seed, int64_t attempt, int64_t sample, uint64_t site) {
    const RandomScope scope(seed, attempt, ids({sample}));
    return normal({1, 64}, site);
  };
  const at::Tensor first = draw(1, 1, 1, kNoiseSite);
  EXPECT_EQ(std::get<0>(at::_unique(first)).numel(), 64);
  for (const at::Tensor& other : {draw(2, 1, 1, kNoiseSite), draw(1, 2, 1, kNoiseSite),
                                  draw(1, 1, 2, kNoiseSite), draw(1, 1, 1, kNoiseSite + 1)}) {
    EXPECT_LT((first == other).sum().item<int64_t>(), 2);
  }
}

TEST(RandomTensor, has_the_moments_and_tails_of_its_distribution) {
  constexpr int64_t kSamples = 500, kEach = 1001;
  const RandomScope scope(11, 5, at::arange(kSamples));
  const at::Tensor flat = uniform({kSamples, kEach}, kNoiseSite, at::kDouble);
  const at::Tensor bell = normal({kSamples, kEach}, kNoiseSite, at::kDouble);
  EXPECT_GE(flat.min().item<double>(), 0);
  EXPECT_LT(flat.max().item<double>(), 1);
  EXPECT_LT(uniform({kSamples, kEach}, kNoiseSite).max().item<float>(), 1);
  EXPECT_NEAR(flat.mean().item<double>(), 0.5, 2e-3);
  EXPECT_NEAR(flat.var().item<double>(), 1.0 / 12, 1e-3);
  EXPECT_NEAR(bell.mean().item<double>(), 0, 5e-3);
  EXPECT_NEAR(bell.var().item<double>(), 1, 1e-2);
  EXPECT_NEAR(bell.pow(4).mean().item<double>(), 3, 5e-2);
  EXPECT_NEAR((bell.abs() > 2).to(at::kDouble).mean().item<double>(), 0.0455, 1e-3);
  // Neighbours, of which four come from one block, are not correlated.
  const at::Tensor left = bell.narrow(1, 0, kEach - 1), right = bell.narrow(1, 1, kEach - 1);
  EXPECT_NEAR((left * right).mean().item<double>(), 0, 5e-3);
}

}  // namespace
}  // namespace tanren
