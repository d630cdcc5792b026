// Shared by the counter-based operators: finds the current RandomScope and makes a draw from it.
// Called by the operators of this room alone.
#pragma once

#include "tanren/base/random.h"
#include "tanren/ops/dropout_kernel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// The thread's RandomScope, for a dropout with probability p of a tensor of shape `sizes`. Error if
// there is no scope, if p is outside [0, 1), or if sizes[0] is not the scope's number of samples.
const RandomScope& scope_for(at::IntArrayRef sizes, double p);
// The same for attention weights [n, heads, rows, columns]; Error also for more than 2^29 rows of
// all heads of a sample.
const RandomScope& attention_scope_for(at::IntArrayRef sizes, double p);

// These decide a mask together with the samples: the key of Philox, and the smallest draw that is
// kept.
struct MaskKey {
  uint64_t key = 0;
  uint32_t threshold = 0;
};
MaskKey mask_key(const RandomScope& scope, double p, uint64_t site);

// `ids` must outlive the draw: contiguous int64 on the CPU.
DropoutDraw make_draw(const RandomScope& scope, const at::Tensor& ids, at::IntArrayRef sizes,
                      double p, uint64_t site);

}  // namespace tanren
