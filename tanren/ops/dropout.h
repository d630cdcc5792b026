// Counter-based dropout: element e of sample i at site s is kept or dropped by
// Philox(seed, attempt, s; i, e), whenever it is drawn. Microbatch size, sample order, ranks,
// recompute, retry and resume therefore cannot change a draw.
// Seed, attempt and sample ids come from the thread's RandomScope. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace tanren {

// The number of a dropout's place in a model, from its path ("hidden.0"): FNV-1a, 64 bits.
constexpr uint64_t site_id(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

// x with each element zeroed with probability p in [0, 1) and otherwise scaled by 1 / (1 - p);
// x itself if p is 0 or not training. Dim 0 of x is the samples of the RandomScope, in its order.
// Element indices follow x's logical row-major order, whatever its strides. Differentiable; any
// floating dtype and device; under autocast x keeps its dtype. Error outside a RandomScope, if x
// has another number of samples than the scope, or for p outside [0, 1).
at::Tensor dropout(const at::Tensor& x, double p, uint64_t site, bool training);

// residual + dropout(x), in one pass if both are contiguous on the CPU. If x is 16-bit and the
// residual fp32, the sum is fp32. Errors as dropout().
at::Tensor add_dropout(const at::Tensor& residual, const at::Tensor& x, double p, uint64_t site,
                       bool training);

}  // namespace tanren
