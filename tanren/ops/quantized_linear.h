// A linear layer with an 8-bit weight, for evaluation and prediction: it has no gradient. Its input
// rows also become bytes, with a scale for each row (dynamic) or one scale for all (static, from a
// calibration). The products of whole numbers are exact, so a row's result depends neither on the
// threads nor on the other rows. Called by quantize/quantize_scope. Thread-safe.
#pragma once

#include "tanren/ops/packed_weight.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tanren {

// The bytes of a static layer's input: x = (byte - zero_point) × scale. Scale: finite, a normal
// number above 0; zero point: 0 to 255.
struct InputScale {
  float scale = 1;
  int32_t zero_point = 128;
};

// Throws an InputError, which begins with `name`, unless `input` is as above.
void check_input_scale(const InputScale& input, std::string_view name);

// x [..., in], fp32 or bf16, weight [out, in], bias [out] or undefined → [..., out] in `dtype`,
// fp32 or bf16, without a gradient. No `input`: dynamic. A row with an element that is not finite
// becomes NaN. Throws an Error for other devices than the CPU, other dtypes and other widths.
at::Tensor quantized_linear(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias,
                            const std::optional<InputScale>& input, at::ScalarType dtype);

// The same numbers, bit by bit, from torch's operators, for tests. Holds the weight in fp64.
at::Tensor quantized_linear_plain(const at::Tensor& x, const QuantizedWeight& weight,
                                  const at::Tensor& bias, const std::optional<InputScale>& input,
                                  at::ScalarType dtype);

}  // namespace tanren
