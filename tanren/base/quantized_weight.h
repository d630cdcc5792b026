// QuantizedWeight: a weight in 8-bit whole numbers, symmetric around 0, with a scale for each
// output channel or for each group of a channel's elements: weight = values × scale. Plain tensors
// of dtypes int8, fp32 and int32, no quantised dtype. Made from a weight or from a file's tensors.
// Read by ops/packed_weight, ops/quantized_embedding and the code that writes files. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace tanren {

// The largest magnitude that quantize_weight writes. A file may also hold -128.
constexpr int64_t kLargestInt8 = 127;

struct QuantizedWeight {
  at::Tensor values;  // int8 [out, …], contiguous
  at::Tensor scales;  // fp32 [out, groups], above 0, and 128 times each is finite
  at::Tensor sums;    // int32 [out, groups]: the sum of each group's values

  int64_t out() const { return values.size(0); }
  int64_t row() const { return values.numel() / values.size(0); }  // elements of a channel
  int64_t groups() const { return scales.size(1); }
  int64_t group() const { return row() / groups(); }
};

// The scales [out, groups] of a floating weight [out, …]. A scale is the largest magnitude in a
// group of `group` successive elements of a channel (0: the whole channel), divided by 127, but at
// least the smallest normal number. Computed in fp32 for each dtype. `group` must be a multiple of
// 4 that divides the channel. Throws InputError, which names `name`, for another group, an element
// that is not finite, an empty weight or a channel above 16 777 215 elements.
at::Tensor weight_scales(const at::Tensor& weight, std::string_view name, int64_t group = 0);

// Rounds weight × (1 / scale) to the nearest, ties to even. Throws like weight_scales.
QuantizedWeight quantize_weight(const at::Tensor& weight, std::string_view name, int64_t group = 0);

// The weight of a file: `values` int8 [out, …] and `scales` fp32 [out], [out, 1] or [out, groups].
// Throws a CheckpointError, which begins with `name`, if a dtype or shape differs, if a scale is
// not above 0, or if 128 times a scale is not finite. Checks shapes before it allocates.
QuantizedWeight checked_weight(const at::Tensor& values, const at::Tensor& scales,
                               std::string_view name);

// values × scale, in `dtype`, with the shape of the values.
at::Tensor expand(const QuantizedWeight& weight, at::ScalarType dtype);

}  // namespace tanren
