// PictureQuality: PSNR and SSIM of pictures in [-1, 1] (data range 2), streaming. Each picture has
// its own value, and the result is the mean over pictures, so the split of the data changes nothing
// but rounding. Sums are in double on the device. Used by evaluation_metrics.
#pragma once

#include "tanren/comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

class PictureQuality {
 public:
  // SSIM costs far more than PSNR; without `with_ssim` it is NaN.
  explicit PictureQuality(bool with_ssim) : with_ssim_(with_ssim) {}

  // outputs and targets [n, c, h, w] of the same shape; for SSIM h and w are at least 7. RunError
  // otherwise.
  void add(const at::Tensor& outputs, const at::Tensor& targets);

  // Joins what all ranks have added; a rank may have added nothing.
  void join_over(Communicator& ranks);

  // Returns {psnr, ssim} as doubles on the device: scikit-image's peak_signal_noise_ratio, infinite
  // for equal pictures, and its structural_similarity with the default uniform window of 7 × 7, as
  // the mean over channels. NaN if nothing was added.
  at::Tensor values() const;

 private:
  bool with_ssim_;
  int64_t pictures_ = 0;
  at::Tensor psnr_, ssim_;  // sums over pictures
};

}  // namespace tanren
