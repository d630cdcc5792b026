#include "tanren/precision/measure.h"

#include "tanren/ops/global_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace tanren {

namespace {
constexpr double kHalfMax = 65520.0;   // rounds to infinity from here on
constexpr double kHalfTiny = 0x1p-25;  // rounds to zero up to here

struct FlushCounts {
  at::Tensor flushed, overflown;  // 0-dim, in double
};

FlushCounts count_flush(const std::vector<at::Tensor>& gradients, at::Device device) {
  const at::Tensor zero = at::zeros({}, at::TensorOptions(at::kDouble).device(device));
  FlushCounts counts{zero, zero.clone()};
  for (const auto& gradient : gradients) {
    const at::Tensor size = gradient.abs();
    counts.flushed += ((size > 0) & (size <= kHalfTiny)).sum();
    counts.overflown += (size >= kHalfMax).sum();
  }
  return counts;
}

// The elements of the ranges, in as few tensors as possible.
std::vector<at::Tensor> spans_of(const std::vector<at::Tensor>& flat,
                                 std::vector<FlatRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const FlatRange& a, const FlatRange& b) {
    return std::tie(a.tensor, a.begin) < std::tie(b.tensor, b.begin);
  });
  std::vector<FlatRange> merged;
  for (const FlatRange& range : ranges) {
    if (range.size == 0) continue;
    const bool goes_on = !merged.empty() && merged.back().tensor == range.tensor &&
                         merged.back().begin + merged.back().size == range.begin;
    if (goes_on) {
      merged.back().size += range.size;
    } else {
      merged.push_back(range);
    }
  }
  std::vector<at::Tensor> spans;
  spans.reserve(merged.size());
  for (const auto& [tensor, begin, size] : merged) {
    spans.push_back(flat[tensor].narrow(0, begin, size));
  }
  return spans;
}

// A gradient that overflowed in fp16 is infinite or NaN and stays so.
void unscale(const std::vector<at::Tensor>& gradients, double scale) {
  if (scale != 1.0 && !gradients.empty()) at::_foreach_mul_(gradients, 1.0 / scale);
}
}  // namespace

Measured unscale_and_measure(const std::vector<at::Tensor>& gradients, double scale,
                             bool report_flush) {
  const at::NoGradGuard no_grad;
  Measured measured;
  const at::Device device = gradients.empty() ? at::kCPU : gradients[0].device();
  if (report_flush) {
    int64_t total = 0;
    for (const auto& gradient : gradients) total += gradient.numel();
    const auto elements = static_cast<double>(std::max<int64_t>(total, 1));
    const auto [flushed, overflown] = count_flush(gradients, device);
    measured.flush_share = flushed / elements;
    measured.overflow_share = overflown / elements;
  }
  unscale(gradients, scale);
  measured.norm = global_norm(gradients);
  return measured;
}

MeasuredRanges unscale_and_measure(const std::vector<at::Tensor>& flat,
                                   const std::vector<FlatRange>& ranges, at::Device device,
                                   double scale, bool report_flush) {
  const at::NoGradGuard no_grad;
  MeasuredRanges measured;
  if (report_flush) {
    const auto [flushed, overflown] = count_flush(spans_of(flat, ranges), device);
    measured.flushed = flushed;
    measured.overflown = overflown;
  }
  unscale(flat, scale);
  measured.squares = sums_of_squares(flat, ranges, device);
  return measured;
}

}  // namespace tanren
