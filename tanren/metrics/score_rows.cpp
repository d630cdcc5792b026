#include "tanren/metrics/score_rows.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

namespace tanren {

namespace {

[[noreturn]] void refuse(const at::Tensor& outputs, const at::Tensor& targets, const char* advice) {
  std::ostringstream text;
  text << "[metrics] outputs " << outputs.sizes() << " do not fit targets " << targets.sizes()
       << "; predict must return " << advice;
  throw RunError(text.str());
}

}  // namespace

void for_rows(const at::Tensor& outputs, const at::Tensor& targets, const UseRows& use) {
  auto expected = targets.sizes().vec();
  if (outputs.dim() > 1) expected.insert(expected.begin() + 1, outputs.size(1));
  if (outputs.dim() < 2 || outputs.sizes() != at::IntArrayRef(expected)) {
    refuse(outputs, targets, "scores [n, classes, …]");
  }
  const int64_t samples = outputs.size(0), classes = outputs.size(1);
  const auto scores = outputs.dim() == 2 ? outputs.unsqueeze(2) : outputs.flatten(2);
  const auto labels = targets.to(at::kLong).reshape({samples, -1});
  const int64_t positions = labels.size(1);
  const int64_t rows = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, classes));
  const int64_t width = std::min(rows, std::max<int64_t>(1, positions));
  const int64_t height = std::max<int64_t>(1, rows / width);
  for (int64_t i = 0; i < samples; i += height) {
    const int64_t num_samples = std::min(height, samples - i);
    for (int64_t j = 0; j < positions; j += width) {
      const int64_t num_positions = std::min(width, positions - j);
      const auto piece = scores.narrow(0, i, num_samples).narrow(2, j, num_positions);
      use(piece.transpose(1, 2).reshape({-1, classes}),
          labels.narrow(0, i, num_samples).narrow(1, j, num_positions).reshape(-1));
    }
  }
}

void for_binary_rows(const at::Tensor& outputs, const at::Tensor& targets, const UseRows& use) {
  if (outputs.sizes() != targets.sizes()) refuse(outputs, targets, "one value per target");
  const auto logits = outputs.reshape(-1);
  const auto classes = targets.reshape(-1);
  for (int64_t i = 0; i < logits.numel(); i += kPieceElements / 2) {
    const int64_t count = std::min(kPieceElements / 2, logits.numel() - i);
    const auto piece = logits.narrow(0, i, count);
    use(at::stack({at::zeros_like(piece), piece}, 1),
        classes.narrow(0, i, count).gt(0.5).to(at::kLong));
  }
}

}  // namespace tanren
