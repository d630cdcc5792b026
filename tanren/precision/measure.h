// Unscales one update's gradients in place and then measures them, in that order and in one call
// (to clip a scaled gradient is the classic mistake of other frameworks). Everything stays on the
// device.
#pragma once

#include "tanren/ops/sums_of_squares.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace tanren {

// 0-dim tensors, the shares in double, the norm in the gradients' dtype but at least in fp32.
// `norm` is non-finite if any gradient is, or if it does not fit (global_norm.h).
struct Measured {
  at::Tensor norm;            // 2-norm over all gradients
  at::Tensor flush_share;     // undefined unless asked for
  at::Tensor overflow_share;  // undefined unless asked for
};

// Divides `gradients` (flat or not, one dtype and device) by `scale` in place, then measures. If
// there are no gradients, norm and shares are 0. Works in every precision: bf16 and fp32 are
// checked for non-finite values just like fp16. report_flush: also measures the share of elements
// that are not 0 but that fp16 would flush to zero, and the share that would overflow fp16, at this
// scale.
Measured unscale_and_measure(const std::vector<at::Tensor>& gradients, double scale,
                             bool report_flush = false);

// Sums and counts over the ranges alone, which ranks can add. The counts are 0-dim, in double and
// undefined unless asked for.
struct MeasuredRanges {
  SumsOfSquares squares = {};
  at::Tensor flushed = {}, overflown = {};
};

// The same for flat gradients on `device` (1-dim, may be none), of which it unscales all and
// measures disjoint ranges.
MeasuredRanges unscale_and_measure(const std::vector<at::Tensor>& flat,
                                   const std::vector<FlatRange>& ranges, at::Device device,
                                   double scale, bool report_flush = false);

}  // namespace tanren
