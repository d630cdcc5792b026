// A linear layer with an 8-bit weight, for evaluation and prediction: it has no gradient. The rows
// become bytes, too, with a scale of each row (dynamic) or one for all (static, from a
// calibration), and the product is one of whole numbers: exact, so that a row's result depends
// neither on the threads nor on the rows beside it. Called by quantize/quantize_scope. Thread-safe.
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
