#include "tanren/train/loss_meter.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

namespace tanren {
namespace {

TEST(LossMeter, refuses_terms_that_change_between_microsteps_or_are_no_sums) {
  LossMeter meter;
  meter.add({{"a", at::zeros({})}}, 1);
  EXPECT_THROW(meter.add({{"b", at::zeros({})}}, 1), Error);
  EXPECT_THROW(meter.add({}, 1), Error);
  EXPECT_THROW(LossMeter().add({{"a", at::zeros({3})}}, 1), Error);
}

TEST(LossMeter, keeps_each_microsteps_sum_and_no_graph) {
  LossMeter meter;
  const auto weight = at::ones({}).requires_grad_();
  meter.add({{"a", weight * 2}, {"b", weight * 3, "tokens"}}, 5);
  meter.add({{"a", weight * 4}, {"b", weight * 5, "tokens"}}, 2);
  EXPECT_EQ(meter.microsteps(), 2);
  EXPECT_EQ(meter.samples(0), std::make_pair(int64_t{0}, int64_t{5}));
  EXPECT_EQ(meter.samples(1), std::make_pair(int64_t{5}, int64_t{7}));
  ASSERT_EQ(meter.sums().size(), 4u);
  EXPECT_EQ(meter.sums()[2].item<float>(), 4.0f);
  EXPECT_FALSE(meter.sums()[0].requires_grad());
  EXPECT_EQ(meter.count_names()[1], "tokens");
}

}  // namespace
}  // namespace tanren
