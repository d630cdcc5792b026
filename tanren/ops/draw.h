// What the counter-based operators share: the RandomScope they stand in and the draw it gives.
// Called by the operators of this room alone.
#pragma once

#include "tanren/base/random.h"
#include "tanren/ops/dropout_kernel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// The thread's scope, for a dropout with probability p of a tensor of shape `sizes`. Error outside
// one, for p outside [0, 1) or another number of samples than the scope has.
const RandomScope& scope_for(at::IntArrayRef sizes, double p);
// The same for weights of attention, [n, heads, rows, columns]; Error also for more than 2^29 rows.
const RandomScope& attention_scope_for(at::IntArrayRef sizes, double p);

// `ids` must outlive the draw: contiguous int64 on the CPU.
DropoutDraw make_draw(const RandomScope& scope, const at::Tensor& ids, at::IntArrayRef sizes,
                      double p, uint64_t site);

}  // namespace tanren
