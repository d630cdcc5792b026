#include "tanren/metrics/value_errors.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/metrics/score_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace tanren {

void ValueErrors::add(const at::Tensor& outputs, const at::Tensor& targets) {
  const int64_t samples = targets.size(0);
  if (outputs.dim() == 0 || outputs.size(0) != samples || outputs.numel() != targets.numel()) {
    std::ostringstream text;
    text << "[metrics] outputs " << outputs.sizes() << " do not fit targets " << targets.sizes()
         << "; predict must return one value per target";
    throw RunError(text.str());
  }
  const auto o = outputs.reshape({samples, -1}), t = targets.reshape({samples, -1});
  if (!first_.defined()) {
    first_ = t[0].to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    for (auto* sum : {&squares_, &absolutes_, &targets_, &target_squares_}) {
      *sum = at::zeros_like(first_);
    }
  }
  const int64_t rows = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, t.size(1)));
  for (int64_t i = 0; i < samples; i += rows) {
    const int64_t count = std::min(rows, samples - i);
    const auto target = t.narrow(0, i, count).to(at::kDouble);
    const auto error = o.narrow(0, i, count).to(at::kDouble) - target;
    squares_.add_(error.square().sum(0));
    absolutes_.add_(error.abs().sum(0));
    const auto centred = target - first_;
    targets_.add_(centred.sum(0));
    target_squares_.add_(centred.square().sum(0));
  }
  samples_ += samples;
}

void ValueErrors::join_over(Communicator& ranks) {
  // One row for each rank: samples, centre, and the four sums. All become centred on the centre of
  // the first rank that has samples.
  at::Tensor mine = at::empty({0, 0}, at::kDouble);
  if (first_.defined()) {
    const auto count = at::full_like(first_, static_cast<double>(samples_));
    mine = at::stack({count, first_, squares_, absolutes_, targets_, target_squares_});
    mine = mine.to(at::kCPU).reshape({1, -1});
  }
  const auto widths = gather_texts(ranks, to_text(mine.size(1)));
  int64_t width = 0;
  for (const auto& text : widths) width = std::max<int64_t>(width, std::stoll(text));
  if (width == 0) return;
  if (mine.numel() == 0) mine = at::empty({0, width}, at::kDouble);
  const auto rows = gather_rows(ranks, mine.to(ranks.device())).to(at::kCPU);
  const at::Device device = first_.defined() ? first_.device() : at::Device(at::kCPU);
  const auto all = rows.view({rows.size(0), 6, -1});
  const auto centre = all[0][1];
  at::Tensor sum = at::zeros_like(all[0]);
  for (const auto& row : all.unbind()) {
    const auto count = row[0], shift = row[1] - centre;
    sum[0] += count;
    sum[2] += row[2];
    sum[3] += row[3];
    sum[4] += row[4] + count * shift;
    sum[5] += row[5] + 2 * shift * row[4] + count * shift.square();
  }
  samples_ = static_cast<int64_t>(sum[0][0].item<double>());
  first_ = centre.to(device, /*non_blocking=*/false, /*copy=*/true);
  squares_ = sum[2].to(device);
  absolutes_ = sum[3].to(device);
  targets_ = sum[4].to(device);
  target_squares_ = sum[5].to(device);
}

at::Tensor ValueErrors::values() const {
  if (!first_.defined()) return at::full({3}, std::nan(""), at::kDouble);
  const auto count = static_cast<double>(samples_);
  const auto spread = (target_squares_ - targets_.square() / count).clamp_min(0);
  const auto without_spread = squares_.eq(0).to(at::kDouble);
  auto r2 = at::where(spread.gt(0), 1 - squares_ / spread, without_spread).mean();
  if (samples_ < 2) r2 = at::full_like(r2, std::nan(""));
  return at::stack({squares_.mean() / count, absolutes_.mean() / count, r2});
}

}  // namespace tanren
