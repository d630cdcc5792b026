#include "tanren/precision/measure.h"

#include "tanren/ops/global_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace tanren {

namespace {
constexpr double kHalfMax = 65520.0;   // rounds to infinity from here on
constexpr double kHalfTiny = 0x1p-25;  // rounds to zero up to here
}  // namespace

Measured unscale_and_measure(const std::vector<at::Tensor>& gradients, double scale,
                             bool report_flush) {
  const at::NoGradGuard no_grad;
  Measured measured;
  if (gradients.empty()) {
    measured.norm = at::zeros({});
    return measured;
  }
  if (report_flush) {
    at::Tensor flushed = at::zeros({}, gradients[0].options().dtype(at::kDouble));
    at::Tensor overflown = flushed.clone();
    int64_t total = 0;
    for (const auto& gradient : gradients) {
      const at::Tensor size = gradient.abs();
      flushed += ((size > 0) & (size <= kHalfTiny)).sum();
      overflown += (size >= kHalfMax).sum();
      total += gradient.numel();
    }
    measured.flush_share = flushed / static_cast<double>(total);
    measured.overflow_share = overflown / static_cast<double>(total);
  }
  if (scale != 1.0) {
    // A gradient that overflowed in fp16 is infinite or NaN and stays so under the division.
    at::_foreach_mul_(gradients, 1.0 / scale);
  }
  measured.norm = global_norm(gradients);
  return measured;
}

}  // namespace tanren
