#include "tanren/metrics/picture_quality.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/comm/exchange.h"
#include "tanren/metrics/score_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace tanren {

namespace {

constexpr double kRange = 2;  // largest difference of two pixels
constexpr int64_t kWindow = 7;

void check_pictures(const at::Tensor& outputs, const at::Tensor& targets, bool with_ssim) {
  const bool fit = outputs.dim() == 4 && outputs.sizes() == targets.sizes();
  if (!fit) {
    std::ostringstream text;
    text << "[metrics] outputs " << outputs.sizes() << " and targets " << targets.sizes()
         << " are not pictures of one shape; psnr and ssim need [n, c, h, w] of both, so change "
            "evaluate.metrics";
    throw RunError(text.str());
  }
  if (!with_ssim || std::min(targets.size(2), targets.size(3)) >= kWindow) return;
  std::ostringstream text;
  text << "[metrics] ssim looks through a window of 7 × 7 pixels, and the pictures are "
       << targets.size(2) << " × " << targets.size(3) << "; drop it from evaluate.metrics";
  throw RunError(text.str());
}

// Means over each window that lies inside of the picture.
at::Tensor window_means(const at::Tensor& pictures) {
  return at::avg_pool2d(pictures, {kWindow, kWindow}, {1, 1});
}

// One value for each picture: Wang et al. 2004, "Image quality assessment", with the sample
// covariance.
at::Tensor similarity(const at::Tensor& x, const at::Tensor& y) {
  constexpr double kPixels = kWindow * kWindow;
  constexpr double kSample = kPixels / (kPixels - 1);
  constexpr double c1 = (0.01 * kRange) * (0.01 * kRange), c2 = (0.03 * kRange) * (0.03 * kRange);
  const auto mean_x = window_means(x), mean_y = window_means(y);
  const auto variances =
      kSample * (window_means(x * x + y * y) - mean_x * mean_x - mean_y * mean_y);
  const auto covariance = kSample * (window_means(x * y) - mean_x * mean_y);
  const auto means = 2 * mean_x * mean_y + c1, squares = mean_x * mean_x + mean_y * mean_y + c1;
  return (means * (2 * covariance + c2) / (squares * (variances + c2))).mean({1, 2, 3});
}

}  // namespace

void PictureQuality::add(const at::Tensor& outputs, const at::Tensor& targets) {
  check_pictures(outputs, targets, with_ssim_);
  const int64_t samples = targets.size(0);
  if (samples == 0) return;
  if (!psnr_.defined()) {
    psnr_ = at::zeros({}, targets.options().dtype(at::kDouble));
    ssim_ = at::full_like(psnr_, with_ssim_ ? 0.0 : std::nan(""));
  }
  const int64_t size = std::max<int64_t>(1, targets.numel() / samples);
  const int64_t at_once = std::max<int64_t>(1, kPieceElements / size);
  for (int64_t i = 0; i < samples; i += at_once) {
    const int64_t count = std::min(at_once, samples - i);
    const auto x = outputs.narrow(0, i, count).to(at::kDouble).contiguous();
    const auto y = targets.narrow(0, i, count).to(at::kDouble).contiguous();
    const auto errors = (x - y).square().mean({1, 2, 3});
    psnr_ += (10 * at::log10(kRange * kRange / errors)).sum();
    if (with_ssim_) ssim_ += similarity(x, y).sum();
  }
  pictures_ += samples;
}

void PictureQuality::join_over(Communicator& ranks) {
  std::vector<double> row = {static_cast<double>(pictures_), 0, 0};
  if (psnr_.defined()) {
    const auto sums = read_to_host(at::stack({psnr_, ssim_}));
    row[1] = sums[0];
    row[2] = with_ssim_ ? sums[1] : 0;
  }
  row = sum_numbers(ranks, row);
  if (row[0] == 0) return;
  pictures_ = static_cast<int64_t>(row[0]);
  const auto options = psnr_.defined() ? psnr_.options() : at::TensorOptions(at::kDouble);
  psnr_ = at::full({}, row[1], options);
  ssim_ = at::full({}, with_ssim_ ? row[2] : std::nan(""), options);
}

at::Tensor PictureQuality::values() const {
  if (!psnr_.defined()) return at::full({2}, std::nan(""), at::kDouble);
  return at::stack({psnr_, ssim_}) / static_cast<double>(pictures_);
}

}  // namespace tanren
