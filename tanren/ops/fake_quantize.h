// Fake quantisation: rounds numbers to the values that bytes can represent, but keeps them
// floating, so that training sees the rounding of the 8-bit model. Gradients pass the rounding
// unchanged and are 0 where numbers are clamped. The scale of an input is learned, after Esser et
// al. (LSQ, 1902.08153); that of a weight is computed from the weight. fp32, bf16 and fp64; on the
// CPU one pass each way. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// Bytes from `low` to `high`; the byte `zero_point` represents 0.
struct FakeRange {
  int64_t low = -127, high = 127, zero_point = 0;
};

// round(clamp(x × (1 / scale), low - zero_point, high - zero_point)) × scale in x's shape and
// dtype, computed in fp32 (in fp64 for fp64), as quantized_linear rounds its input. `scale`: one
// number, fp32 (fp64 for fp64), above 0. Its gradient is LSQ's, times 1 / √(sample_elements ×
// the largest magnitude of the range). `sample_elements` counts the elements of one sample, never
// of the microbatch, so that the gradients of microbatches add up to the batch's. A NaN stays NaN;
// an infinity is clamped.
at::Tensor fake_quantize(const at::Tensor& x, const at::Tensor& scale, const FakeRange& range,
                         int64_t sample_elements);

// The same for a weight [out, …] with the scales and values of quantize_weight (base/
// quantized_weight.h): in fp32, expand(quantize_weight(weight)) bit by bit. The gradient is 1
// everywhere: nothing is clamped. Throws as quantize_weight, except that an element that is not
// finite makes its group NaN.
at::Tensor fake_quantize_weight(const at::Tensor& weight, int64_t group = 0);

}  // namespace tanren
