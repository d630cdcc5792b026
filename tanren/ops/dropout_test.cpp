#include "tanren/ops/dropout.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/blocks/recompute.h"
#include "tanren/ops/cuda/dropout_mask.h"
#include "tanren/ops/draw.h"
#include "tanren/ops/dropout_mask.h"
#include "tanren/ops/philox_group.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>

namespace tanren {
namespace {

constexpr uint64_t kSite = site_id("hidden.0");

at::Tensor ids_of(std::vector<int64_t> ids) { return at::tensor(ids); }

at::Tensor dropped(const at::Tensor& x, const at::Tensor& ids, double p = 0.3,
                   uint64_t site = kSite, uint64_t seed = 5, int64_t attempt = 2) {
  const RandomScope scope(seed, attempt, ids);
  return dropout(x, p, site, true);
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

at::Tensor reference_mask(at::IntArrayRef sizes, bool is_attention) {
  const RandomScope& scope = *RandomScope::current();
  const MaskKey key = mask_key(scope, 0.4, kSite);
  return dropout_mask_reference(scope.ids(), sizes, static_cast<int64_t>(key.key), key.threshold,
                                is_attention);
}

TEST(Dropout, outside_a_scope_says_to_open_one) {
  const auto message = message_of([] { dropout(at::ones({2, 3}), 0.5, kSite, true); });
  EXPECT_NE(message.find("open tanren::RandomScope"), std::string::npos) << message;
}

TEST(Dropout, refuses_a_tensor_whose_first_dim_is_not_the_samples) {
  const auto message = message_of([] { dropped(at::ones({2, 3}), ids_of({1, 2, 3})); });
  EXPECT_NE(message.find("[2, 3] in a RandomScope of 3"), std::string::npos) << message;
  EXPECT_NE(message_of([] { dropped(at::ones({}), ids_of({1})); }), "");
}

TEST(Dropout, refuses_probabilities_outside_zero_to_one) {
  for (const double p : {1.0, -0.1, 2.0, std::nan("")}) {
    EXPECT_NE(message_of([&] { dropped(at::ones({1, 3}), ids_of({0}), p); }), "") << p;
  }
}

TEST(Dropout, is_the_identity_in_evaluation_and_at_zero) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_TRUE(dropout(x, 0.5, kSite, false).is_same(x));
  EXPECT_TRUE(dropout(x, 0.0, kSite, true).is_same(x));
}

TEST(Dropout, keeps_the_promised_share_and_the_mean) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor out = dropped(at::ones({64, 4096}), at::arange(64), p);
    const double kept = (out != 0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(kept, 1 - p, 0.005);
    EXPECT_NEAR(out.mean().item<double>(), 1.0, 0.03);
  }
}

TEST(Dropout, matches_the_plain_philox_of_base) {
  const at::Tensor ids = ids_of({7, (int64_t{3} << 32) + 9});
  const RandomScope scope(5, 2, ids);
  const at::Tensor mask = dropout_mask({2, 150}, 0.3, kSite);
  const uint64_t key = random_bits(5, 2, kSite);
  const auto threshold = static_cast<uint32_t>(std::round(0.3 * 4294967296.0));
  for (int64_t i = 0; i < 2; ++i) {
    const auto id = static_cast<uint64_t>(ids[i].item<int64_t>());
    for (int64_t e = 0; e < 150; ++e) {
      const auto block = philox({static_cast<uint32_t>(e / 4), 0, static_cast<uint32_t>(id),
                                 static_cast<uint32_t>(id >> 32)},
                                {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
      ASSERT_EQ(mask[i][e].item<bool>(), block[e % 4] >= threshold) << i << " " << e;
    }
  }
}

TEST(Dropout, of_attention_draws_by_row_head_and_column_and_refuses_too_many_rows) {
  const RandomScope scope(5, 2, ids_of({(int64_t{3} << 32) + 9}));
  const at::Tensor mask = attention_mask({1, 3, 5, 70}, 0.3, kSite, at::kCPU);
  ASSERT_EQ(mask.sizes(), at::IntArrayRef({1, 3, 5, 70}));
  const uint64_t key = random_bits(5, 2, kSite);
  const auto threshold = static_cast<uint32_t>(std::round(0.3 * 4294967296.0));
  for (int64_t h = 0; h < 3; ++h) {
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t c = 0; c < 70; ++c) {
        const auto block =
            philox({static_cast<uint32_t>(c / 4), static_cast<uint32_t>(r * 3 + h), 9, 3},
                   {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
        ASSERT_EQ(mask[0][h][r][c].item<bool>(), block[c % 4] >= threshold) << h << r << c;
      }
    }
  }
  try {
    attention_mask({1, 1 << 15, 1 << 14, 8}, 0.3, kSite, at::kCPU);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[ops] attention with dropout of 32768 heads × 16384 tokens; at most 2^29 rows "
                 "are supported, or set attention_dropout to 0");
  }
}

TEST(PhiloxGroup, every_implementation_gives_the_numbers_of_base) {
  for (const int64_t id : {int64_t{0}, int64_t{-5}, (int64_t{7} << 40) + 1}) {
    for (const uint64_t first : {0ull, 16ull, 0xFFFFFFF0ull, (7ull << 32) + 32}) {
      const std::array<uint32_t, 2> key = {0xDEADBEEFu, 42};
      std::array<uint32_t, kGroup> best;
      std::array<uint32_t, kGroup> portable;
      best_draw_group()(key, first, id, best.data());
      draw_group_portable(key, first, id, portable.data());
      EXPECT_EQ(best, portable);
      const auto block = philox(
          {static_cast<uint32_t>(first) + 3, static_cast<uint32_t>(first >> 32),
           static_cast<uint32_t>(id), static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32)},
          key);
      for (size_t word = 0; word < 4; ++word) EXPECT_EQ(portable[12 + word], block[word]);
    }
  }
}

TEST(Dropout, fused_mask_equals_the_reference_bitwise) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3}, {3, 1}, {3, 5}, {3, 64}, {3, 7, 11}, {3, 5000}, {3, 2, 40, 77}}) {
    const RandomScope scope(11, 4, ids_of({100, 3, -8}));
    EXPECT_TRUE(
        at::equal(dropout_mask(sizes, 0.4, kSite), reference_mask(sizes, /*is_attention=*/false)));
  }
}

TEST(Dropout, mask_of_attention_equals_the_reference_bitwise) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 1, 1, 1}, {3, 2, 5, 64}, {3, 4, 9, 130}, {3, 2, 0, 7}}) {
    const RandomScope scope(11, 4, ids_of({100, 3, -8}));
    EXPECT_TRUE(at::equal(attention_mask(sizes, 0.4, kSite, at::kCPU),
                          reference_mask(sizes, /*is_attention=*/true)));
  }
}

// The kernel runs on a GPU alone; what each of its threads does can be run here.
TEST(Dropout, mask_of_the_cuda_kernel_is_the_same) {
  const RandomScope scope(11, 4, ids_of({100, 3, (int64_t{1} << 40) + 5}));
  const MaskKey key = mask_key(scope, 0.4, kSite);
  const auto drawn = [&](at::IntArrayRef sizes, int64_t heads, int64_t rows_of_head) {
    at::Tensor mask = at::empty(sizes, at::kBool);
    cuda::MaskCall call{.ids = scope.ids().const_data_ptr<int64_t>(),
                        .mask = mask.mutable_data_ptr<bool>(),
                        .samples = sizes[0],
                        .rows = heads * rows_of_head,
                        .columns = mask.numel() / sizes[0] / (heads * rows_of_head),
                        .heads = heads,
                        .rows_of_head = rows_of_head,
                        .row_blocks = kRowDraws / 4,
                        .key = key.key,
                        .threshold = key.threshold,
                        .stream = nullptr};
    for (int64_t i = 0; i < cuda::num_blocks(call); ++i) cuda::draw_block(call, i);
    return mask;
  };
  EXPECT_TRUE(at::equal(drawn({3, 7, 11}, 1, 1), dropout_mask({3, 7, 11}, 0.4, kSite)));
  EXPECT_TRUE(
      at::equal(drawn({3, 4, 9, 130}, 4, 9), attention_mask({3, 4, 9, 130}, 0.4, kSite, at::kCPU)));
}

TEST(Dropout, any_split_and_order_of_the_samples_draws_the_same) {
  const at::Tensor x = at::rand({30, 37}) + 1;
  const at::Tensor ids = at::randperm(1000).slice(0, 0, 30);
  const at::Tensor whole = dropped(x, ids);
  for (const int64_t size : {30, 15, 10, 7, 1}) {
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < 30; i += size) {
      const int64_t end = std::min<int64_t>(i + size, 30);
      parts.push_back(dropped(x.slice(0, i, end), ids.slice(0, i, end)));
    }
    EXPECT_TRUE(at::equal(at::cat(parts), whole)) << size;
  }
  const at::Tensor order = at::randperm(30);
  EXPECT_TRUE(at::equal(dropped(x.index({order}), ids.index({order})), whole.index({order})));
}

TEST(Dropout, seed_attempt_site_and_sample_each_change_the_draw) {
  const at::Tensor x = at::ones({1, 256});
  const at::Tensor base = dropped(x, ids_of({1}), 0.5, 1, 5, 2);
  EXPECT_TRUE(at::equal(dropped(x, ids_of({1}), 0.5, 1, 5, 2), base));
  EXPECT_FALSE(at::equal(dropped(x, ids_of({2}), 0.5, 1, 5, 2), base));
  EXPECT_FALSE(at::equal(dropped(x, ids_of({1}), 0.5, 2, 5, 2), base));
  EXPECT_FALSE(at::equal(dropped(x, ids_of({1}), 0.5, 1, 6, 2), base));
  EXPECT_FALSE(at::equal(dropped(x, ids_of({1}), 0.5, 1, 5, 3), base));
}

TEST(Dropout, thread_count_does_not_change_the_draw) {
  const int threads = at::get_num_threads();
  const at::Tensor x = at::ones({40, 30000});
  at::set_num_threads(1);
  const at::Tensor one = dropped(x, at::arange(40));
  at::set_num_threads(4);
  const at::Tensor four = dropped(x, at::arange(40));
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, four));
}

TEST(Dropout, strides_do_not_change_the_draw_and_are_kept) {
  const at::Tensor x = at::randn({4, 6, 5, 3});
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor out = dropped(last, at::arange(4));
  EXPECT_TRUE(at::equal(out, dropped(x, at::arange(4))));
  EXPECT_EQ(out.strides(), last.strides());
  const at::Tensor transposed = at::randn({9, 4}).t();
  EXPECT_TRUE(at::equal(dropped(transposed, at::arange(4)),
                        dropped(transposed.contiguous(), at::arange(4))));
}

TEST(Dropout, every_floating_dtype_has_the_same_mask_and_rounds_once) {
  const at::Tensor x = at::randn({3, 129});
  const at::Tensor kept = dropped(at::ones({3, 129}), at::arange(3)) != 0;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor typed = x.to(dtype);
    const at::Tensor out = dropped(typed, at::arange(3));
    EXPECT_EQ(out.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(out, at::native_dropout_backward(typed, kept, 1 / (1 - 0.3))));
  }
}

TEST(Dropout, keeps_the_dtype_and_the_mask_under_autocast) {
  const at::Tensor x = at::randn({3, 65}, at::kBFloat16).requires_grad_();
  const at::Tensor plain = dropped(x, at::arange(3));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor cast = dropped(x, at::arange(3));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(cast.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(cast, plain));
}

TEST(Dropout, a_nan_stays_visible_even_where_it_is_dropped) {
  const at::Tensor x = at::full({1, 64}, std::nan(""));
  EXPECT_TRUE(dropped(x, ids_of({3}), 0.9).isnan().all().item<bool>());
}

TEST(Dropout, gradient_equals_finite_differences) {
  for (const bool channels_last : {false, true}) {
    at::Tensor x = at::randn({2, 3, 2, 2}, at::kDouble);
    if (channels_last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor weight = at::randn({2, 3, 2, 2}, at::kDouble);  // a non-uniform gradient
    const auto value = [&](const at::Tensor& at) {
      return (dropped(at, ids_of({4, 9})).pow(2) * weight).sum();
    };
    const at::Tensor leaf = x.clone().requires_grad_();
    const at::Tensor gradient = torch::autograd::grad({value(leaf)}, {leaf})[0];
    for (int64_t i = 0; i < x.numel(); ++i) {
      const at::Tensor step = at::zeros({x.numel()}, at::kDouble);
      step[i] = 1e-6;
      const double slope =
          ((value(x + step.view(x.sizes())) - value(x - step.view(x.sizes()))) / 2e-6)
              .item<double>();
      EXPECT_NEAR(gradient.reshape({-1})[i].item<double>(), slope, 1e-6);
    }
  }
}

TEST(Dropout, is_twice_differentiable) {
  const at::Tensor x = at::randn({2, 5}, at::kDouble).requires_grad_();
  const at::Tensor out = dropped(x, ids_of({4, 9}));
  const at::Tensor first = torch::autograd::grad({out.pow(3).sum()}, {x}, {}, true, true)[0];
  const at::Tensor second = torch::autograd::grad({first.sum()}, {x})[0];
  const at::Tensor factor = dropped(at::ones({2, 5}, at::kDouble), ids_of({4, 9}));
  EXPECT_TRUE(at::allclose(second, 6 * x.detach() * factor.pow(3)));
}

TEST(Dropout, in_a_recomputed_block_is_drawn_again_in_backward_instead_of_saved) {
  const at::Tensor ids = ids_of({4, 9, 2});
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool added : {false, true}) {
      at::Tensor x = at::randn({3, 40, 8}).requires_grad_();
      const at::Tensor seed = at::randn({3, 40, 8});
      int drawing = 0;  // passes that reached the dropout
      const auto block = [&](const at::Tensor& input) {
        const at::Tensor y = input.sin().to(dtype);
        ++drawing;
        return added ? add_dropout(input, y, 0.3, kSite, true) : dropout(y, 0.3, kSite, true);
      };
      const auto gradient = [&](bool again) {
        at::Tensor loss;
        {
          const RandomScope random((uint64_t{1} << 63) + 5, 2, ids);
          const RecomputeScope recompute({"*"}, {});
          loss = ((again ? run_recomputed(x, block) : block(x)).to(at::kFloat) * seed).sum();
        }
        return torch::autograd::grad({loss}, {x})[0];
      };
      const at::Tensor kept = gradient(false);
      EXPECT_EQ(std::exchange(drawing, 0), 1);
      EXPECT_TRUE(at::equal(gradient(true), kept)) << dtype << " " << added;
      EXPECT_EQ(drawing, 1);  // sin's input was the last tensor that backward needs
    }
  }
}

TEST(AddDropout, equals_a_dropout_and_a_sum_bitwise_in_value_and_gradients) {
  const RandomScope scope(5, 2, at::arange(3));
  for (const auto& [wide, narrow] : {std::pair{at::kFloat, at::kFloat},
                                     {at::kDouble, at::kDouble},
                                     {at::kFloat, at::kBFloat16},
                                     {at::kFloat, at::kHalf}}) {
    for (const bool strided : {false, true}) {
      const at::Tensor residual = at::randn({3, 40, 7}, wide).requires_grad_();
      at::Tensor x = at::randn({3, 40, 7}, narrow);
      if (strided) x = at::randn({3, 7, 40}, narrow).transpose(1, 2);
      x.requires_grad_();
      const at::Tensor seed = at::randn({3, 40, 7}, wide);
      const auto run = [&](const at::Tensor& out) {
        auto all = torch::autograd::grad({out}, {residual, x}, {seed});
        all.push_back(out);
        return all;
      };
      const auto fused = run(add_dropout(residual, x, 0.3, kSite, true));
      const auto plain = run(residual + dropout(x, 0.3, kSite, true));
      for (size_t i = 0; i < fused.size(); ++i) {
        EXPECT_EQ(fused[i].scalar_type(), plain[i].scalar_type());
        EXPECT_TRUE(at::equal(fused[i], plain[i]) ||
                    (i == 1 && at::allclose(fused[i], plain[i], 0.01, 1e-6)))
            << i << " " << narrow;
      }
    }
  }
}

TEST(AddDropout, is_a_sum_in_evaluation_and_an_error_outside_a_scope) {
  const at::Tensor a = at::randn({2, 3}), b = at::randn({2, 3});
  EXPECT_TRUE(at::equal(add_dropout(a, b, 0.3, kSite, false), a + b));
  EXPECT_TRUE(at::equal(add_dropout(a, b, 0, kSite, true), a + b));
  EXPECT_THROW(add_dropout(a, b, 0.3, kSite, true), Error);
}

TEST(Dropout, an_empty_batch_passes) {
  EXPECT_EQ(dropped(at::ones({0, 8}), at::empty({0}, at::kLong)).numel(), 0);
}

}  // namespace
}  // namespace tanren
