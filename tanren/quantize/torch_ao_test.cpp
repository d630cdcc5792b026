// Compares our linear layers with 8-bit weights to torch.ao's dynamic one (FBGEMM). The file of
// torch.ao's results is written by tests/fixtures/make/linear_dynamic_fixture.py, which says how
// the schemes differ and for which rows they give the same whole numbers.
#include "tanren/formats/safetensors.h"
#include "tanren/ops/quantized_linear.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {
namespace {

struct AoCase {
  at::Tensor x, weight, bias;     // [rows, in], [out, in], [out]
  at::Tensor values, scales;      // the weight as torch quantised it
  at::Tensor batch, rows, plain;  // torch.ao's results
  InputScale of_batch;
};

std::vector<AoCase> ao_cases() {
  const TensorMap all =
      read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/linear_dynamic.safetensors").tensors;
  std::vector<AoCase> cases;
  for (int i = 0; all.contains(fmt::format("{}/x", i)); ++i) {
    const auto of = [&](const char* name) { return all.at(fmt::format("{}/{}", i, name)); };
    cases.push_back({.x = of("x"),
                     .weight = of("weight"),
                     .bias = of("bias"),
                     .values = of("values"),
                     .scales = of("scales"),
                     .batch = of("batch"),
                     .rows = of("rows"),
                     .plain = of("plain"),
                     .of_batch = {of("batch_scale").item<float>(),
                                  static_cast<int32_t>(of("batch_zero_point").item<int64_t>())}});
  }
  return cases;
}

// The largest ratio of |got - wanted| to `most`, element by element.
double share_of(const at::Tensor& most, const at::Tensor& got, const at::Tensor& wanted) {
  return ((got.to(at::kDouble) - wanted).abs() / most).max().item<double>();
}

// The rounding error of a result from the same whole numbers and scales. It is that of 16 roundings
// in fp32 (16 × 2⁻²⁴) of the product and the bias. The product is at most |result| + |bias|.
at::Tensor rounding_of(const at::Tensor& result, const at::Tensor& bias) {
  return (result.to(at::kDouble).abs() + 2 * bias.abs()) * 1e-6;
}

at::Tensor ours(const AoCase& one, const std::optional<InputScale>& input) {
  const PackedWeight weight = pack_weight(quantize_weight(one.weight, "w"));
  return quantized_linear(one.x, weight, one.bias, input, at::kFloat);
}

TEST(TorchAo, has_the_same_weights_with_the_same_scales) {
  ASSERT_EQ(ao_cases().size(), 4u);
  for (const AoCase& one : ao_cases()) {
    const QuantizedWeight weight = quantize_weight(one.weight, "w");
    EXPECT_TRUE(at::equal(weight.values, one.values));
    EXPECT_TRUE(at::equal(weight.scales.squeeze(1), one.scales));
  }
}

TEST(TorchAo, computes_what_our_dynamic_layer_does_of_rows_in_our_scheme) {
  for (const AoCase& one : ao_cases()) {
    const at::Tensor got = ours(one, {});
    const at::Tensor most = rounding_of(one.rows, one.bias);
    EXPECT_LE(share_of(most, got, one.rows), 1);
    if (one.x.size(0) == 1) continue;
    EXPECT_GT(share_of(most, got, one.batch), 100) << "one scale for all rows";
  }
}

TEST(TorchAo, computes_what_our_static_layer_does_with_the_scale_that_it_chose) {
  for (const AoCase& one : ao_cases()) {
    const at::Tensor got = ours(one, one.of_batch);
    EXPECT_LE(share_of(rounding_of(one.batch, one.bias), got, one.batch), 1);
  }
}

// Each scheme moves a number of a row by half of its step at most.
TEST(TorchAo, is_within_what_both_schemes_round_of_rows_as_they_are) {
  for (const AoCase& one : ao_cases()) {
    const at::Tensor rows = one.x.to(at::kDouble);
    const at::Tensor step = rows.abs().amax(1) / 127;
    const at::Tensor theirs = (rows.amax(1).clamp_min(0) - rows.amin(1).clamp_max(0)) / 255;
    const at::Tensor sums =
        (one.values.to(at::kDouble) * one.scales.unsqueeze(1)).abs().sum(1);  // [out]
    const at::Tensor most = at::outer((step + theirs) / 2, sums) + rounding_of(one.plain, one.bias);
    EXPECT_LE(share_of(most, ours(one, {}), one.plain), 1);
  }
}

}  // namespace
}  // namespace tanren
