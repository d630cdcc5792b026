// What the counter-based operators share: the RandomScope they stand in and the draw it gives.
// Called by the operators of this room alone.
#pragma once

#include "tanren/base/random.h"
#include "tanren/ops/dropout_kernel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// The thread's scope, for a dropout with probability p of a tensor of shape `sizes`. Error outside
// one, for p outside [0, 1), another number of samples than the scope has, or huge samples.
const RandomScope& scope_for(at::IntArrayRef sizes, double p);

// `ids` must outlive the draw: contiguous int64 on the CPU.
DropoutDraw make_draw(const RandomScope& scope, const at::Tensor& ids, at::IntArrayRef sizes,
                      double p, uint64_t site);

}  // namespace tanren
