#include "tanren/base/loss_seeds.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

#include <thread>

#include <ATen/ATen.h>

namespace tanren {
namespace {

// 0.5 for "cross_entropy" by "samples", 0.25 by another count; none for other terms.
LossSeeds of_cross_entropy() {
  return LossSeeds(
      [](const std::string& term, const std::string& count_name) -> std::optional<double> {
        if (count_name.empty()) throw DataError("no such count");
        if (term != "cross_entropy") return std::nullopt;
        return count_name == "samples" ? 0.5 : 0.25;
      });
}

TEST(LossSeeds, pass_on_the_error_of_a_count_that_is_not_known) {
  LossSeeds seeds = of_cross_entropy();
  EXPECT_THROW(seeds.of("cross_entropy", "", at::kFloat, at::kCPU), DataError);
}

TEST(LossSeeds, have_no_tensor_where_no_backward_begins) {
  LossSeeds seeds = of_cross_entropy();
  EXPECT_FALSE(seeds.of("told", "samples", at::kFloat, at::kCPU).defined());
}

TEST(LossSeeds, are_one_tensor_for_each_term_count_and_dtype) {
  LossSeeds seeds = of_cross_entropy();
  const auto of = [&](const char* count_name, at::ScalarType dtype) {
    return seeds.of("cross_entropy", count_name, dtype, at::kCPU);
  };
  const at::Tensor seed = of("samples", at::kFloat), wide = of("samples", at::kDouble),
                   other = of("tokens", at::kFloat);
  EXPECT_EQ(seed.dim(), 0);
  EXPECT_EQ(seed.scalar_type(), at::kFloat);
  EXPECT_EQ(seed.item<double>(), 0.5);
  EXPECT_EQ(wide.scalar_type(), at::kDouble);
  EXPECT_EQ(other.item<double>(), 0.25);
  EXPECT_TRUE(of("samples", at::kFloat).is_same(seed));
  EXPECT_TRUE(of("samples", at::kDouble).is_same(wide));
  EXPECT_TRUE(of("tokens", at::kFloat).is_same(other));
}

TEST(LossSeedsScope, the_innermost_of_this_thread_counts_and_a_null_one_hides_the_others) {
  EXPECT_EQ(LossSeedsScope::current(), nullptr);
  LossSeeds seeds = of_cross_entropy();
  {
    const LossSeedsScope outer(&seeds);
    EXPECT_EQ(LossSeedsScope::current(), &seeds);
    {
      const LossSeedsScope inner(nullptr);
      EXPECT_EQ(LossSeedsScope::current(), nullptr);
    }
    EXPECT_EQ(LossSeedsScope::current(), &seeds);
    const LossSeeds* elsewhere = &seeds;
    std::thread([&] { elsewhere = LossSeedsScope::current(); }).join();
    EXPECT_EQ(elsewhere, nullptr);
  }
  EXPECT_EQ(LossSeedsScope::current(), nullptr);
}

}  // namespace
}  // namespace tanren
