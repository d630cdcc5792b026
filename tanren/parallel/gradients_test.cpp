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

Sharding shared_by_two(int64_t rank, bool transient) {
  return {.rank = rank,
          .layout = {.first_bucket_bytes = 1, .bucket_bytes = 1, .parts = 2},
          .transient = transient};
}

TEST(Gradients, that_are_shared_have_a_padded_bucket_each_and_own_a_part_of_it) {
  auto wide = at::ones({3, 5}).requires_grad_(), narrow = at::ones({2}).requires_grad_();
  for (const int64_t rank : {0, 1}) {
    Gradients gradients({wide, narrow}, shared_by_two(rank, /*transient=*/false));
    ASSERT_EQ(gradients.flat().size(), 2u);
    EXPECT_EQ(gradients.flat()[0].numel(), 2);  // the last parameter is the first bucket
    EXPECT_EQ(gradients.flat()[1].numel(), 16);
    ((wide * at::arange(15).view({3, 5})).sum() + narrow.sum()).backward();
    ASSERT_EQ(gradients.slices().size(), 2u);
    const Slice& slice = gradients.slices()[0];
    EXPECT_EQ(slice.begin, rank * 8);
    EXPECT_EQ(slice.end, rank == 0 ? 8 : 15);
    EXPECT_TRUE(at::equal(gradients.slice_gradient(slice),
                          at::arange(slice.begin, slice.end).to(at::kFloat)));
    EXPECT_TRUE(gradients.owned()[1].is_alias_of(gradients.flat()[1]));
  }
}

TEST(Gradients, that_are_transient_come_with_the_first_of_a_bucket_and_go_when_it_is_released) {
  auto a = at::ones({2, 4}).requires_grad_(), b = at::ones({3}).requires_grad_();
  Gradients gradients({a, b}, shared_by_two(0, /*transient=*/true));
  EXPECT_TRUE(gradients.flat().empty());
  EXPECT_FALSE(a.grad().defined());
  const auto input = at::arange(8).view({2, 4}).to(at::kFloat);
  for (int i = 0; i < 2; ++i) (a * input).sum().backward();
  EXPECT_FALSE(b.grad().defined());
  EXPECT_TRUE(a.grad().is_alias_of(gradients.bucket(1)));
  EXPECT_TRUE(at::equal(a.grad(), 2 * input));
  gradients.release(1);
  EXPECT_FALSE(a.grad().defined());
  EXPECT_THROW((a * input).sum().backward(), Error) << "its sum has gone";
  gradients.zero();
  (a * input).sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), input));
  EXPECT_TRUE(at::equal(gradients.bucket(0), at::zeros({4}))) << "nothing has reached it";
}

// An embedding whose weight nothing else reads.
TEST(Gradients, that_come_sparse_are_put_into_their_place) {
  const auto ids = at::tensor({1, 4, 1}, at::kLong);
  auto expected = at::zeros({6, 2});
  expected[1] = 4;
  expected[4] = 2;
  for (const bool transient : {true, false}) {
    for (const bool is_alone : {true, false}) {
      auto table = at::ones({6, 2}).requires_grad_(), bias = at::ones({2}).requires_grad_();
      Sharding sharding = shared_by_two(0, transient);
      sharding.layout.first_bucket_bytes = 1 << 20;
      Gradients gradients(is_alone ? std::vector{table} : std::vector{table, bias}, sharding);
      const auto embed = [&] {
        at::embedding(table, ids, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true)
            .sum()
            .backward();
      };
      for (int window = 0; window < 2; ++window) {
        gradients.zero();
        if (!is_alone) bias.sum().backward();  // its bucket exists already
        table.mutable_grad().reset();
        for (int i = 0; i < 2; ++i) embed();
        EXPECT_TRUE(at::equal(table.grad(), expected)) << transient << is_alone;
        EXPECT_TRUE(table.grad().is_alias_of(gradients.bucket(0)));
        EXPECT_FALSE(is_alone && gradients.active() != nullptr);
      }
    }
  }
}

// Issue 22: a microstep that is repeated for lack of memory begins while other ranks sum.
TEST(Gradients, that_a_sum_over_ranks_writes_to_are_no_change_of_the_forward) {
  auto weight = at::ones({2, 2}).requires_grad_(), bias = at::ones({2}).requires_grad_();
  Gradients gradients({weight, bias});
  for (const bool is_sent : {false, true}) {
    gradients.zero();
    if (is_sent) gradients.note_sent();
    gradients.begin_microstep();
    EXPECT_FALSE(gradients.first_change());
    gradients.flat()[0].add_(1);
    const auto change = gradients.first_change();
    ASSERT_EQ(change.has_value(), !is_sent);
    if (change) {
      EXPECT_FALSE(change->is_this_one) << "a neighbour may be it";
    }
    bias.mutable_grad() = at::Tensor();
    ASSERT_TRUE(gradients.first_change()) << is_sent;
    EXPECT_EQ(gradients.first_change()->parameter, 1U);
    EXPECT_TRUE(gradients.first_change()->is_this_one);
  }
}

// Issue 22: torch's zero_grad() sets them to none.
TEST(Gradients, that_were_set_to_none_or_replaced_are_views_again_before_anybody_reads_them) {
  auto wide = at::ones({3, 5}).requires_grad_(), narrow = at::ones({2}).requires_grad_();
  for (const bool shared : {false, true}) {
    const Sharding sharding = shared ? shared_by_two(0, /*transient=*/false) : Sharding{};
    Gradients gradients({wide, narrow}, sharding);
    const auto sum = [&] {
      double all = 0;
      for (const auto& flat : gradients.flat()) all += flat.sum().item<double>();
      return all;
    };
    (wide.sum() + narrow.sum()).backward();
    wide.mutable_grad().reset();
    wide.sum().backward();
    wide.sum().backward();
    EXPECT_EQ(sum(), 2 * 15 + 2) << "it begins again, and is added to";
    EXPECT_TRUE(wide.grad().is_alias_of(gradients.flat()[shared ? 1 : 0]));
    narrow.mutable_grad() = at::full({2}, 5.0);
    EXPECT_EQ(sum(), 2 * 15 + 2 * 5);
    wide.mutable_grad().reset();
    EXPECT_EQ(gradients.first_non_finite(), -1);
    EXPECT_EQ(sum(), 2 * 5) << "none is 0";
    narrow.mutable_grad().reset();
    gradients.zero();
    EXPECT_EQ(sum(), 0);
    EXPECT_TRUE(narrow.grad().defined());
  }
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
