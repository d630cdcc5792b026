#include "tanren/precision/measure.h"

#include "tanren/ops/global_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace tanren {

namespace {
constexpr double kHalfMax = 65520.0;   // rounds to infinity from here on
constexpr double kHalfTiny = 0x1p-25;  // rounds to zero up to here

// Into a Measured or a MeasuredRanges.
template <class Shares>
void measure_flush(const std::vector<at::Tensor>& gradients, Shares& shares) {
  at::Tensor flushed = at::zeros({}, gradients[0].options().dtype(at::kDouble));
  at::Tensor overflown = flushed.clone();
  int64_t total = 0;
  for (const auto& gradient : gradients) {
    const at::Tensor size = gradient.abs();
    flushed += ((size > 0) & (size <= kHalfTiny)).sum();
    overflown += (size >= kHalfMax).sum();
    total += gradient.numel();
  }
  shares.flush_share = flushed / static_cast<double>(total);
  shares.overflow_share = overflown / static_cast<double>(total);
}

// A gradient that overflowed in fp16 is infinite or NaN and stays so.
void unscale(const std::vector<at::Tensor>& gradients, double scale) {
  if (scale != 1.0) at::_foreach_mul_(gradients, 1.0 / scale);
}
}  // namespace

Measured unscale_and_measure(const std::vector<at::Tensor>& gradients, double scale,
                             bool report_flush) {
  const at::NoGradGuard no_grad;
  Measured measured;
  if (gradients.empty()) {
    measured.norm = at::zeros({});
    return measured;
  }
  if (report_flush) measure_flush(gradients, measured);
  unscale(gradients, scale);
  measured.norm = global_norm(gradients);
  return measured;
}

MeasuredRanges unscale_and_measure(const std::vector<at::Tensor>& flat,
                                   const std::vector<FlatRange>& ranges, double scale,
                                   bool report_flush) {
  const at::NoGradGuard no_grad;
  MeasuredRanges measured;
  if (report_flush && !flat.empty()) measure_flush(flat, measured);
  unscale(flat, scale);
  measured.squares = sums_of_squares(flat, ranges);
  return measured;
}

}  // namespace tanren
