// PackedWeight: a QuantizedWeight in the order in which products read it. Made once for each
// weight; read by quantized_linear, quantized_convolution and quantized_embedding. It takes as many
// bytes as the values, with the channels rounded up to 16 and their elements to 4. Thread-safe.
#pragma once

#include "tanren/base/quantized_weight.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// Channels of one panel; the last panel may be narrower, a multiple of 16.
constexpr int64_t kPanelWidth = 64;

struct PackedWeight {
  int64_t out = 0, in = 0;  // channels, elements of each
  // int8 [out rounded up, depth]: panels of kPanelWidth channels, each as pack_int8_columns
  // (int8_gemm.h) writes it.
  at::Tensor panels;
  at::Tensor scales;  // fp32 [groups, out]
  at::Tensor sums;    // int32 [groups, out]

  int64_t depth() const { return panels.size(1); }
  int64_t groups() const { return scales.size(0); }
};

// The elements of each channel are read in the order of `weight.values`, which lies on the CPU. In
// a dry run the result has its shapes alone.
PackedWeight pack_weight(const QuantizedWeight& weight);

// Writes the depth() bytes of one channel to `to`: its elements, then zeros.
void read_channel(const PackedWeight& weight, int64_t channel, int8_t* to);

// The values, int8 [out, in], in a new tensor.
at::Tensor unpacked_values(const PackedWeight& weight);

}  // namespace tanren
