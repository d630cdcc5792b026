#include "tanren/ops/quantized_linear.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/forward_work.h"
#include "tanren/ops/int8_gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadsScope() { at::set_num_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

struct LinearCase {
  int64_t rows, in, out, group;
  bool bias;
  std::optional<InputScale> input;
  at::ScalarType from, to;
};

std::vector<LinearCase> linear_cases() {
  const InputScale middle{0.02F, 117}, edge{0.5F, 255};
  return {
      {1, 4, 1, 0, false, {}, at::kFloat, at::kFloat},
      {3, 7, 5, 0, true, {}, at::kFloat, at::kBFloat16},
      {8, 768, 130, 0, true, {}, at::kBFloat16, at::kBFloat16},
      {8, 256, 64, 32, true, middle, at::kFloat, at::kFloat},
      {65, 36, 17, 12, false, {}, at::kBFloat16, at::kFloat},
      {130, 129, 66, 0, true, middle, at::kBFloat16, at::kFloat},
      {257, 64, 200, 4, true, edge, at::kFloat, at::kBFloat16},
      {300, 100, 70, 0, false, edge, at::kFloat, at::kFloat},
  };
}

at::Tensor input_of(const LinearCase& one) {
  // Rows of very different sizes; one of zeros.
  at::Tensor x = at::randn({one.rows, one.in}) * at::logspace(-3, 2, one.rows).unsqueeze(1);
  if (one.rows > 2) x[1].zero_();
  return x.to(one.from);
}

TEST(QuantizedLinear, refuses_what_it_cannot_compute) {
  const PackedWeight weight = pack_weight(quantize_weight(at::ones({3, 8}), "w"));
  const auto refused = [&](const at::Tensor& x, const at::Tensor& bias, at::ScalarType dtype) {
    return error_of<Error>([&] { quantized_linear(x, weight, bias, {}, dtype); });
  };
  TANREN_EXPECT_CONTAINS(refused(at::ones({2, 8}, at::kDouble), {}, at::kFloat), "Double");
  TANREN_EXPECT_CONTAINS(refused(at::ones({2, 8}), {}, at::kHalf), "Half");
  TANREN_EXPECT_CONTAINS(refused(at::ones({2, 7}), {}, at::kFloat), "7 elements a row");
  TANREN_EXPECT_CONTAINS(refused(at::ones({2, 8}), at::ones({4}), at::kFloat), "4 of the bias");
  for (const InputScale& bad : {InputScale{0, 0}, InputScale{-1, 0}, InputScale{NAN, 0},
                                InputScale{INFINITY, 0}, InputScale{1, -1}, InputScale{1, 256}}) {
    const auto text = error_of<InputError>([&] { check_input_scale(bad, "fc"); });
    TANREN_EXPECT_CONTAINS(text, "fc has an input scale");
  }
  check_input_scale({0.1F, 255}, "fc");
}

TEST(QuantizedLinear, is_its_reference_bit_by_bit_for_any_threads_and_any_split_of_rows) {
  at::manual_seed(4);
  for (const LinearCase& one : linear_cases()) {
    const at::Tensor x = input_of(one);
    const QuantizedWeight weight = quantize_weight(at::randn({one.out, one.in}), "w", one.group);
    const PackedWeight packed = pack_weight(weight);
    const at::Tensor bias = one.bias ? at::randn({one.out}).to(one.to) : at::Tensor();
    const at::Tensor expected = quantized_linear_plain(x, weight, bias, one.input, one.to);
    ASSERT_EQ(expected.scalar_type(), one.to);
    for (const int threads : {1, 2, 4}) {
      const ThreadsScope scope(threads);
      EXPECT_TRUE(at::equal(quantized_linear(x, packed, bias, one.input, one.to), expected))
          << one.rows << " × " << one.in << " × " << one.out << " by " << threads;
    }
    for (const int64_t part : {1, 7, 64}) {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& rows : x.split(part)) {
        parts.push_back(quantized_linear(rows, packed, bias, one.input, one.to));
      }
      EXPECT_TRUE(at::equal(at::cat(parts), expected)) << one.rows << " by " << part;
    }
  }
}

TEST(QuantizedLinear, adds_sums_that_int32_does_not_hold) {
  const int64_t in = 2 * kMaxInt8Depth + 3;
  at::Tensor x = at::ones({3, in}), w = at::ones({18, in});
  x[1].neg_();
  w[2].neg_();
  w.narrow(0, 3, 5).narrow(1, 0, 70000).zero_();
  const QuantizedWeight weight = quantize_weight(w, "w");
  // All bytes are 255 or 0 with zero point 0: sums of 255 × 127 × 130 003, about 4.2e9.
  const std::optional<InputScale> input = InputScale{1.0F / 255, 0};
  const at::Tensor y = quantized_linear(x, pack_weight(weight), {}, input, at::kFloat);
  EXPECT_TRUE(at::equal(y, quantized_linear_plain(x, weight, {}, input, at::kFloat)));
  EXPECT_NEAR(y[0][0].item<double>(), static_cast<double>(in), 0.1);
  EXPECT_NEAR(y[0][2].item<double>(), static_cast<double>(-in), 0.1);
  EXPECT_EQ(y[1][0].item<double>(), 0) << "below the range of bytes";
  const at::Tensor dynamic = quantized_linear(x, pack_weight(weight), {}, {}, at::kFloat);
  EXPECT_TRUE(at::equal(dynamic, quantized_linear_plain(x, weight, {}, {}, at::kFloat)));
}

TEST(QuantizedLinear, is_near_the_layer_in_fp32) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({2, 50, 384}), w = at::randn({96, 384}), bias = at::randn({96});
  const at::Tensor exact = at::linear(x, w, bias);
  const auto error_with = [&](const std::optional<InputScale>& input, int64_t group) {
    const PackedWeight weight = pack_weight(quantize_weight(w, "w", group));
    const at::Tensor y = quantized_linear(x, weight, bias, input, at::kFloat);
    EXPECT_EQ(y.sizes(), exact.sizes());
    return ((y - exact).norm() / exact.norm()).item<double>();
  };
  EXPECT_LT(error_with({}, 0), 0.015);
  EXPECT_LT(error_with({}, 32), error_with({}, 0));
  const auto range = static_cast<float>(x.abs().max().item<double>() / 127);
  EXPECT_LT(error_with(InputScale{range, 128}, 0), 0.02);
}

TEST(QuantizedLinear, a_row_that_is_not_finite_becomes_nan_and_no_other_row) {
  at::manual_seed(6);
  const QuantizedWeight weight = quantize_weight(at::randn({20, 40}), "w");
  const PackedWeight packed = pack_weight(weight);
  const std::optional<InputScale> fixed = InputScale{0.1F, 100};
  for (const auto& input : {std::optional<InputScale>(), fixed}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      at::Tensor x = at::randn({5, 40}).to(dtype);
      const at::Tensor before = quantized_linear(x, packed, {}, input, at::kFloat);
      x[1][39] = NAN;
      x[3][0] = -INFINITY;
      const at::Tensor y = quantized_linear(x, packed, {}, input, at::kFloat);
      for (const int64_t row : {0, 2, 4}) EXPECT_TRUE(at::equal(y[row], before[row])) << row;
      for (const int64_t row : {1, 3}) EXPECT_TRUE(y[row].isnan().all().item<bool>()) << row;
      const at::Tensor plain = quantized_linear_plain(x, weight, {}, input, at::kFloat);
      EXPECT_TRUE(at::equal(plain.isnan(), y.isnan()));
    }
  }
}

TEST(QuantizedLinear, a_packed_weight_gives_its_values_back) {
  at::manual_seed(7);
  for (const int64_t out : {1, 16, 65, 200}) {
    for (const int64_t in : {1, 4, 30}) {
      const QuantizedWeight weight = quantize_weight(at::randn({out, in}), "w");
      const PackedWeight packed = pack_weight(weight);
      EXPECT_TRUE(at::equal(unpacked_values(packed), weight.values)) << out << " × " << in;
      EXPECT_LE(packed.panels.numel(), (out + 15) * (in + 3));
    }
  }
}

TEST(QuantizedLinear, a_dry_run_knows_its_shape_and_its_work) {
  ForwardWork work;
  const DryScope dry(&work);
  const PackedWeight weight = pack_weight(
      {at::empty({30, 50}, at::kChar), at::empty({30, 1}), at::empty({30, 1}, at::kInt)});
  const at::Tensor y =
      quantized_linear(at::empty({4, 6, 50}), weight, at::empty({30}), {}, at::kBFloat16);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({4, 6, 30}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(is_dry(y));
  EXPECT_EQ(work.multiply_adds[0], 4 * 6 * 50 * 30);
  EXPECT_EQ(work.backward_multiply_adds, 0);
}

}  // namespace
}  // namespace tanren
