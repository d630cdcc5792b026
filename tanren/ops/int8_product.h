// The product of rows of bytes and a packed weight, with scales and bias, block by block: a block's
// rows are made, multiplied, scaled and written while they are in the cache. A row's result depends
// neither on the threads nor on the other rows: the sums are exact, and the operations after them
// have a fixed order. Called by quantized_linear.cpp and quantized_convolution.cpp alone.
#pragma once

#include "tanren/ops/packed_weight.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace tanren {

// Writes the bytes of the rows [first, first + count) of the left factor, `stride` bytes apart, and
// the scale of each. Called by several threads.
using FillRows = std::function<void(int64_t first, int64_t count, int64_t stride, uint8_t* bytes,
                                    float* scales)>;

// out [rows, weight.out], fp32 or bf16, contiguous: row scale × Σ over groups of (scale × Σ
// (byte - zero_point) × value) + bias. `bias`: fp32 [out] or undefined. The padding bytes of a
// row, up to the weight's depth, may have any value.
void int8_product(const FillRows& fill, const PackedWeight& weight, int32_t zero_point,
                  const at::Tensor& bias, const at::Tensor& out);

}  // namespace tanren
