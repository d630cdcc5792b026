#include "tanren/ops/attention_kernel.h"

#include "tanren/ops/philox_group.h"
#include "tanren/ops/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace tanren {
namespace {

// factors[c] = dropout's factor for weight (row, c), for c < count rounded up to a whole group.
template <typename Acc>
void draw_row(const AttentionBlock& block, int64_t row, int64_t count, Acc* factors) {
  static const DrawGroup draw_group = best_draw_group();
  alignas(64) uint32_t values[kGroup];
  const auto keep = static_cast<Acc>(block.keep_scale);
  for (int64_t c = 0; c < count; c += kGroup) {
    const int64_t first = block.first_draw + row * block.row_draws + c;
    draw_group(block.key, static_cast<uint64_t>(first / 4), block.id, values);
    for (int64_t i = 0; i < kGroup; ++i) {
      factors[c + i] = values[i] >= block.threshold ? keep : Acc{0};
    }
  }
}

int64_t columns_of(const AttentionBlock& block, int64_t r) {
  return block.seen_by_all > 0 ? block.seen_by_all : block.first_row + r + 1;
}

// In place: scores → exp(scale × score + bias - the row's maximum). Returns their sum; log_sum =
// the logarithm of the sum without the maximum subtracted.
template <typename Acc>
Acc powers(const AttentionBlock& block, int64_t seen, Acc* row, Acc* log_sum) {
  auto scale = static_cast<Acc>(block.scale);
  if (block.bias != nullptr) {
    for (int64_t c = 0; c < seen; ++c) row[c] = row[c] * scale + static_cast<Acc>(block.bias[c]);
    scale = 1;
  }
  Acc highest = -std::numeric_limits<Acc>::infinity();
#pragma omp simd reduction(max : highest)
  for (int64_t c = 0; c < seen; ++c) highest = row[c] > highest ? row[c] : highest;
  exp_row(row, scale, highest * scale, seen, row);
  Acc sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < seen; ++c) sum += row[c];
  *log_sum = highest * scale + std::log(sum);
  return sum;
}

}  // namespace

template <typename S, typename T, typename Acc>
void attention_weights(const AttentionBlock& block, const S* scores, T* weights, Acc* log_sums) {
  const int64_t width = block.cols + kGroup;
  const auto memory = std::make_unique<Acc[]>(static_cast<size_t>(2 * width));
  Acc *row = memory.get(), *factors = row + width;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t seen = columns_of(block, r);
    load_row(scores + r * block.cols, seen, row);
    const Acc sum = powers(block, seen, row, log_sums + r);
    T* out = weights + r * block.cols;
    if (block.threshold > 0) {
      draw_row(block, block.first_row + r, seen, factors);
      for (int64_t c = 0; c < seen; ++c) row[c] *= factors[c];
    }
    store_row(row, 1 / sum, seen, out);
    std::fill(out + seen, out + block.cols, T(0));
  }
}

template <typename S, typename T, typename Acc>
void attention_gradient(const AttentionBlock& block, const S* scores, const S* gradients,
                        const Acc* log_sums, const Acc* deltas, T* weights, T* slopes) {
  const int64_t width = block.cols + kGroup;
  const auto memory = std::make_unique<Acc[]>(static_cast<size_t>(3 * width));
  Acc *row = memory.get(), *factors = row + width, *slope = factors + width;
  std::fill(factors, factors + width, Acc{1});
  const auto scale = static_cast<Acc>(block.scale);
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t seen = columns_of(block, r);
    T* own_weights = weights + r * block.cols;
    T* own_slopes = slopes + r * block.cols;
    load_row(scores + r * block.cols, seen, row);
    if (block.bias != nullptr) {
      // The row's sum is computed again and not taken from log_sums. Next to a bias as large as
      // padding's, the logarithm of the sum is rounded away there.
      Acc log_sum = 0;
      const Acc factor = 1 / powers(block, seen, row, &log_sum);
      for (int64_t c = 0; c < seen; ++c) row[c] *= factor;
    } else {
      exp_row(row, scale, log_sums[r], seen, row);
    }
    if (block.threshold > 0) draw_row(block, block.first_row + r, seen, factors);
    load_row(gradients + r * block.cols, seen, slope);
    const Acc delta = deltas[r];
    for (int64_t c = 0; c < seen; ++c) {
      slope[c] = row[c] * (slope[c] * factors[c] - delta);
      row[c] *= factors[c];
    }
    store_row(row, 1, seen, own_weights);
    store_row(slope, scale, seen, own_slopes);
    std::fill(own_weights + seen, own_weights + block.cols, T(0));
    std::fill(own_slopes + seen, own_slopes + block.cols, T(0));
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): types
#define TANREN_ATTENTION(S, T, Acc)                                                      \
  template void attention_weights<S, T, Acc>(const AttentionBlock&, const S*, T*, Acc*); \
  template void attention_gradient<S, T, Acc>(const AttentionBlock&, const S*, const S*, \
                                              const Acc*, const Acc*, T*, T*)
// NOLINTEND(bugprone-macro-parentheses)
TANREN_ATTENTION(float, float, float);
TANREN_ATTENTION(double, double, double);
TANREN_ATTENTION(c10::Half, c10::Half, float);
TANREN_ATTENTION(c10::BFloat16, c10::BFloat16, float);
TANREN_ATTENTION(float, c10::BFloat16, float);
#undef TANREN_ATTENTION

}  // namespace tanren
