#include "tanren/ops/fake_quantize.h"

#include "tanren/base/error.h"
#include "tanren/base/quantized_weight.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

// LSQ as its authors write it: the gradient of `scale` is multiplied by a factor, and gradients
// pass the rounding unchanged.
at::Tensor lsq(const at::Tensor& x, const at::Tensor& scale, const FakeRange& range,
               int64_t sample_elements) {
  const auto low = static_cast<double>(range.low - range.zero_point);
  const auto high = static_cast<double>(range.high - range.zero_point);
  const double factor = 1 / std::sqrt(static_cast<double>(sample_elements) * std::max(-low, high));
  const at::Tensor own = scale * factor + (scale - scale * factor).detach();
  const at::Tensor steps = (x / own).clamp(low, high);
  return (steps + (steps.round() - steps).detach()) * own;
}

std::pair<at::Tensor, at::Tensor> gradients_of(const at::Tensor& y, const at::Tensor& x,
                                               const at::Tensor& scale, const at::Tensor& seed) {
  const auto both = torch::autograd::grad({y}, {x, scale}, {seed});
  return {both[0], both[1]};
}

TEST(FakeQuantize, refuses_what_it_cannot_round) {
  const auto refused = [](const at::Tensor& x, const at::Tensor& scale, const FakeRange& range,
                          int64_t elements) {
    return error_of<Error>([&] { fake_quantize(x, scale, range, elements); });
  };
  const at::Tensor x = at::ones({4}), scale = at::ones({1});
  for (const auto& text :
       {refused(x.to(at::kHalf), scale, {}, 4), refused(x, scale.to(at::kDouble), {}, 4),
        refused(x, at::ones({2}), {}, 4), refused(x, scale, {}, 0),
        refused(x, scale, {1, 255, 0}, 4), refused(x, scale, {3, 3, 3}, 4)}) {
    TANREN_EXPECT_CONTAINS(text, "[ops] fake_quantize of");
  }
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           fake_quantize_weight(at::ones({2, 6}), 4);
                         }),
                         "groups of 4");
}

TEST(FakeQuantize, values_and_gradients_are_those_of_lsq_in_fp64) {
  at::manual_seed(11);
  for (const FakeRange& range : {FakeRange{}, FakeRange{0, 255, 0}, FakeRange{0, 255, 93}}) {
    // Some are clamped on both sides, and more than one partial sum is added.
    const at::Tensor x = (at::randn({30, 401}, at::kDouble) * 3).requires_grad_();
    const at::Tensor scale = at::full({1}, 0.021, at::kDouble).requires_grad_();
    const at::Tensor seed = at::randn_like(x);
    const at::Tensor y = fake_quantize(x, scale, range, 401), expected = lsq(x, scale, range, 401);
    EXPECT_TRUE(at::allclose(y, expected, 1e-12, 1e-12));
    const at::Tensor clamped = x.detach() / scale.detach();
    EXPECT_TRUE(clamped.gt(range.high - range.zero_point).any().item<bool>());
    EXPECT_TRUE(clamped.lt(range.low - range.zero_point).any().item<bool>());
    const auto [dx, dscale] = gradients_of(y, x, scale, seed);
    const auto [dx_expected, dscale_expected] = gradients_of(expected, x, scale, seed);
    EXPECT_TRUE(at::allclose(dx, dx_expected, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(dscale, dscale_expected, 1e-9, 1e-12))
        << dscale.item<double>() << " " << dscale_expected.item<double>();
  }
}

TEST(FakeQuantize, microbatches_add_up_to_the_batch) {
  at::manual_seed(12);
  const at::Tensor x = at::randn({30, 50}, at::kDouble), seed = at::randn_like(x);
  const auto gradient_with = [&](int64_t part) {
    const at::Tensor scale = at::full({}, 0.01, at::kDouble).requires_grad_();
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (int64_t first = 0; first < 30; first += part) {
      const int64_t size = std::min<int64_t>(part, 30 - first);
      const at::Tensor y = fake_quantize(x.narrow(0, first, size), scale, {}, 50);
      sum += torch::autograd::grad({y}, {scale}, {seed.narrow(0, first, size)})[0];
    }
    return sum.item<double>();
  };
  const double whole = gradient_with(30);
  EXPECT_GT(std::abs(whole), 1e-6);
  for (const int64_t part : {7, 1}) EXPECT_NEAR(gradient_with(part), whole, 1e-12);
}

TEST(FakeQuantize, fp32_and_bf16_are_the_exact_results_rounded_and_independent_of_threads) {
  at::manual_seed(13);
  const FakeRange range{0, 255, 40};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({6, 5000}).to(dtype).requires_grad_();
    const at::Tensor scale = at::full({}, 0.0137F).requires_grad_();
    const at::Tensor seed = at::randn({6, 5000}).to(dtype);
    const at::Tensor y = fake_quantize(x, scale, range, 5000);
    EXPECT_EQ(y.scalar_type(), dtype);
    // As quantized_linear rounds: times 1 / scale, in fp32.
    const at::Tensor steps = (x.detach().to(at::kFloat) * scale.detach().reciprocal()).round();
    EXPECT_TRUE(at::equal(y, (steps.clamp(-40, 215) * scale.detach()).to(dtype)));
    const auto [dx, dscale] = gradients_of(y, x, scale, seed);
    const at::Tensor exact = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor wide = scale.detach().to(at::kDouble).requires_grad_();
    const auto [dx_exact, dscale_exact] =
        gradients_of(fake_quantize(exact, wide, range, 5000), exact, wide, seed.to(at::kDouble));
    EXPECT_TRUE(at::equal(dx, dx_exact.to(dtype)));
    EXPECT_NEAR(dscale.item<double>() / dscale_exact.item<double>(), 1, 1e-3);
    const int threads = at::get_num_threads();
    for (const int other : {1, 4}) {
      at::set_num_threads(other);
      const auto again = gradients_of(fake_quantize(x, scale, range, 5000), x, scale, seed);
      EXPECT_TRUE(at::equal(again.second, dscale)) << other;
    }
    at::set_num_threads(threads);
  }
}

TEST(FakeQuantize, keeps_layouts_and_nan_and_can_be_differentiated_twice) {
  const at::Tensor images = at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor scale = at::full({}, 0.05F);
  const at::Tensor y = fake_quantize(images, scale, {}, 60);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(y, fake_quantize(images.contiguous(), scale, {}, 60)));
  at::Tensor bad = at::zeros({4});
  bad[2] = NAN;
  EXPECT_TRUE(at::equal(fake_quantize(bad, scale, {}, 4).isnan(), bad.isnan()));
  const at::Tensor x = at::randn({8}).requires_grad_(), seed = at::randn({8}).requires_grad_();
  const at::Tensor first = torch::autograd::grad({fake_quantize(x, scale, {}, 8)}, {x}, {seed},
                                                 true, /*create_graph=*/true)[0];
  const at::Tensor second = torch::autograd::grad({first.sum()}, {seed})[0];
  EXPECT_TRUE(at::equal(second, at::ones({8})));
}

TEST(FakeQuantize, a_weight_is_the_expanded_weight_of_bytes_and_its_gradient_passes) {
  at::manual_seed(14);
  for (const int64_t group : {0, 12}) {
    const at::Tensor weight = at::randn({7, 6, 2, 2}).requires_grad_(),
                     seed = at::randn({7, 6, 2, 2});
    const at::Tensor fake = fake_quantize_weight(weight, group);
    EXPECT_TRUE(at::equal(fake, expand(quantize_weight(weight, "w", group), at::kFloat)));
    EXPECT_TRUE(at::equal(torch::autograd::grad({fake}, {weight}, {seed})[0], seed));
    const at::Tensor wide = fake_quantize_weight(weight.detach().to(at::kDouble), group);
    EXPECT_EQ(wide.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::allclose(wide, fake.detach().to(at::kDouble), 1e-5, 1e-6));
  }
  const at::Tensor last = at::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(fake_quantize_weight(last).strides(), last.strides());
  EXPECT_TRUE(at::equal(fake_quantize_weight(last), fake_quantize_weight(last.contiguous())));
}

TEST(FakeQuantize, a_dry_run_knows_its_shapes) {
  const DryScope dry;
  const at::Tensor x = at::empty({8, 64}).requires_grad_(), scale = at::empty({1}).requires_grad_();
  const at::Tensor y = fake_quantize(x, scale, {}, 64);
  EXPECT_TRUE(is_dry(y));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(scale.grad().sizes(), scale.sizes());
  EXPECT_TRUE(is_dry(fake_quantize_weight(x)));
}

}  // namespace
}  // namespace tanren
