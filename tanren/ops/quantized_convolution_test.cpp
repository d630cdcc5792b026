#include "tanren/ops/quantized_convolution.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/forward_work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

struct Int8ConvolutionCase {
  int64_t n, in, out, kernel, stride, padding, height, width;
  InputScale input;
};

const std::vector<Int8ConvolutionCase>& int8_convolutions() {
  static const std::vector<Int8ConvolutionCase> cases = {
      {1, 1, 1, 1, 1, 0, 1, 1, {0.02F, 128}},   {2, 3, 18, 3, 1, 1, 9, 7, {0.02F, 100}},
      {3, 5, 70, 3, 2, 1, 11, 12, {0.03F, 0}},  {2, 16, 8, 1, 2, 0, 8, 6, {0.02F, 255}},
      {2, 4, 6, 7, 2, 3, 13, 10, {0.04F, 128}}, {1, 8, 16, 5, 1, 4, 3, 2, {0.02F, 77}},
  };
  return cases;
}

TEST(QuantizedConvolution, refuses_what_it_cannot_compute) {
  const auto weight = quantize_weight(at::ones({4, 3, 3, 3}), "w");
  const auto prepared = [&](const at::Tensor& of, int64_t group, int64_t stride) {
    return error_of<Error>(
        [&] { prepare_convolution(quantize_weight(of, "w", group), {}, stride, 0); });
  };
  TANREN_EXPECT_CONTAINS(prepared(at::ones({4, 3, 3, 2}), 0, 1), "square kernel");
  TANREN_EXPECT_CONTAINS(prepared(at::ones({4, 4, 2, 2}), 8, 1), "2 scales a channel");
  TANREN_EXPECT_CONTAINS(prepared(at::ones({4, 3, 3, 3}), 0, 0), "stride 0");
  const auto of = prepare_convolution(weight, {}, 1, 0);
  const auto refused = [&](const at::Tensor& x, const at::Tensor& bias, at::ScalarType dtype) {
    return error_of<Error>([&] { quantized_convolution(x, of, bias, dtype); });
  };
  TANREN_EXPECT_CONTAINS(refused(at::ones({1, 4, 5, 5}), {}, at::kFloat), "3 channels");
  TANREN_EXPECT_CONTAINS(refused(at::ones({1, 3, 5, 5}, at::kDouble), {}, at::kFloat), "Double");
  TANREN_EXPECT_CONTAINS(refused(at::ones({1, 3, 5, 5}), at::ones({3}), at::kFloat),
                         "channels to 4");
  TANREN_EXPECT_CONTAINS(refused(at::ones({1, 3, 2, 5}), {}, at::kFloat), "larger images");
}

TEST(QuantizedConvolution, by_patches_is_its_reference_bit_by_bit_for_any_threads) {
  at::manual_seed(31);
  for (const auto& one : int8_convolutions()) {
    const auto weight = quantize_weight(at::randn({one.out, one.in, one.kernel, one.kernel}), "w");
    const auto of =
        prepare_convolution(weight, one.input, one.stride, one.padding, ConvolutionWay::patches);
    for (const auto from : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::randn({one.n, one.in, one.height, one.width}).to(from);
      for (const auto to : {at::kFloat, at::kBFloat16}) {
        const at::Tensor bias = to == at::kFloat ? at::Tensor() : at::randn({one.out});
        const at::Tensor expected =
            quantized_convolution_plain(x, weight, one.input, one.stride, one.padding, bias, to);
        const int threads = at::get_num_threads();
        for (const int count : {1, 2, 4}) {
          at::set_num_threads(count);
          const at::Tensor y = quantized_convolution(x, of, bias, to);
          EXPECT_EQ(y.scalar_type(), to);
          EXPECT_TRUE(at::equal(y, expected)) << one.kernel << " " << one.stride << " " << count;
        }
        at::set_num_threads(threads);
        EXPECT_TRUE(at::equal(
            quantized_convolution(x.contiguous(at::MemoryFormat::ChannelsLast), of, bias, to),
            expected));
      }
    }
  }
}

// The largest byte and value whose pairs of products fit 16 bits: every processor is right.
TEST(QuantizedConvolution, by_onednn_is_near_its_reference) {
  at::manual_seed(32);
  for (const auto& one : int8_convolutions()) {
    at::Tensor values = at::randint(-60, 61, {one.out, one.in, one.kernel, one.kernel}, at::kFloat);
    values.select(1, 0).select(1, 0).select(1, 0).fill_(127);  // so that the scales are 1
    const auto weight = quantize_weight(values, "w");
    const InputScale input{1, 20};
    const at::Tensor x = at::randint(-20, 100, {one.n, one.in, one.height, one.width}, at::kFloat);
    const at::Tensor bias = at::randn({one.out});
    const auto of =
        prepare_convolution(weight, input, one.stride, one.padding, ConvolutionWay::onednn);
    for (const auto to : {at::kFloat, at::kBFloat16}) {
      const at::Tensor expected =
          quantized_convolution_plain(x, weight, input, one.stride, one.padding, bias, at::kFloat);
      const at::Tensor y = quantized_convolution(x, of, bias, to);
      EXPECT_EQ(y.scalar_type(), to);
      EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
      EXPECT_TRUE(at::allclose(y.to(at::kFloat), expected, to == at::kFloat ? 1e-5 : 1e-2, 0.5))
          << one.kernel << " " << one.in;
    }
  }
}

TEST(QuantizedConvolution, the_best_way_is_near_the_layer_in_fp32) {
  at::manual_seed(33);
  const at::Tensor x = at::randn({2, 16, 14, 14}), w = at::randn({32, 16, 3, 3});
  const auto scale = static_cast<float>(x.abs().max().item<double>() / 127);
  const auto of = prepare_convolution(quantize_weight(w, "w"), {scale, 128}, 1, 1);
  const at::Tensor exact = at::conv2d(x, w, {}, {1, 1}, {1, 1});
  const at::Tensor y = quantized_convolution(x, of, {}, at::kFloat);
  EXPECT_LT(((y - exact).norm() / exact.norm()).item<double>(), 0.02);
  EXPECT_EQ(of.onednn_weight.defined(), has_onednn_convolution());
}

TEST(QuantizedConvolution, an_image_that_is_not_finite_becomes_nan_and_no_other) {
  at::manual_seed(34);
  const auto weight = quantize_weight(at::randn({6, 3, 3, 3}), "w");
  for (const auto way : {ConvolutionWay::patches, ConvolutionWay::onednn}) {
    const auto of = prepare_convolution(weight, {0.02F, 128}, 1, 1, way);
    at::Tensor x = at::randn({3, 3, 6, 6});
    const at::Tensor before = quantized_convolution(x, of, {}, at::kFloat);
    x[1][2][5][5] = INFINITY;
    const at::Tensor y = quantized_convolution(x, of, {}, at::kFloat);
    EXPECT_TRUE(y[1].isnan().all().item<bool>());
    EXPECT_TRUE(at::equal(y[0], before[0]));
    EXPECT_TRUE(at::equal(y[2], before[2]));
  }
}

TEST(QuantizedConvolution, a_dry_run_knows_its_shape_and_its_work) {
  ForwardWork work;
  const DryScope dry(&work);
  const auto of = prepare_convolution(
      {at::empty({10, 3, 3, 3}, at::kChar), at::empty({10, 1}), at::empty({10, 1}, at::kInt)},
      {0.1F, 3}, 2, 1);
  const at::Tensor y =
      quantized_convolution(at::empty({4, 3, 8, 9}), of, at::empty({10}), at::kBFloat16);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({4, 10, 4, 5}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(work.multiply_adds[0], 4 * 10 * 4 * 5 * 27);
  EXPECT_EQ(work.backward_multiply_adds, 0);
}

}  // namespace
}  // namespace tanren
