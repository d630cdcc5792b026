#include "tanren/ops/cross_entropy_kernel.h"

#include "tanren/ops/parallel_for.h"
#include "tanren/ops/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {
namespace {

constexpr int64_t kPiece = 1024;  // columns at a time, so that they stay in the first-level cache

template <typename Acc>
Acc highest_of(const Acc* x, int64_t count, Acc highest) {
#pragma omp simd reduction(max : highest)
  for (int64_t i = 0; i < count; ++i) highest = x[i] > highest ? x[i] : highest;
  return highest;
}

template <typename Acc>
Acc sum_of(const Acc* x, int64_t count) {
  Acc sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

// Reads each piece of a row into `memory`, then calls work(first, count).
template <typename T, typename Acc, typename F>
void for_each_piece(const T* row, int64_t classes, Acc* memory, const F& work) {
  for (int64_t first = 0; first < classes; first += kPiece) {
    const int64_t count = std::min(kPiece, classes - first);
    load_row(row + first, count, memory);
    work(first, count);
  }
}

}  // namespace

template <typename T, typename Acc>
void cross_entropy_rows(const T* logits, const int64_t* labels, int64_t rows, int64_t classes,
                        Acc* maxima, Acc* sums, Acc* losses) {
  parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    alignas(64) Acc piece[kPiece];
    for (int64_t r = begin; r < end; ++r) {
      maxima[r] = sums[r] = losses[r] = 0;
      if (labels[r] == kIgnoredLabel) continue;
      const T* row = logits + r * classes;
      // One pass: when the maximum rises, the sum so far is rescaled to the new maximum.
      Acc highest = -std::numeric_limits<Acc>::infinity(), sum = 0;
      for_each_piece(row, classes, piece, [&](int64_t, int64_t count) {
        const Acc higher = highest_of(piece, count, highest);
        if (higher == -std::numeric_limits<Acc>::infinity()) return;  // all logits so far are -inf
        if (higher > highest) sum *= std::exp(highest - higher);
        highest = higher;
        exp_row(piece, Acc{1}, highest, count, piece);
        sum += sum_of(piece, count);
      });
      maxima[r] = highest;
      sums[r] = sum;
      // The difference comes first: added to a large score, the logarithm would be rounded away.
      losses[r] = (highest - static_cast<Acc>(row[labels[r]])) + std::log(sum);
    }
  });
}

template <typename T, typename Acc>
void cross_entropy_gradient(const T* logits, const int64_t* labels, const Acc* maxima,
                            const Acc* sums, Acc seed, int64_t rows, int64_t classes, T* gradient) {
  parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    alignas(64) Acc piece[kPiece];
    for (int64_t r = begin; r < end; ++r) {
      T* to = gradient + r * classes;
      if (labels[r] == kIgnoredLabel) {
        std::fill(to, to + classes, T(0));
        continue;
      }
      for_each_piece(logits + r * classes, classes, piece, [&](int64_t first, int64_t count) {
        exp_row(piece, Acc{1}, maxima[r], count, piece);
        const int64_t own = labels[r] - first;
        if (own >= 0 && own < count) piece[own] -= sums[r];
        store_row(piece, seed / sums[r], count, to + first);
      });
    }
  });
}

// NOLINTBEGIN(bugprone-macro-parentheses): types
#define TANREN_CROSS_ENTROPY(T, Acc)                                                               \
  template void cross_entropy_rows<T, Acc>(const T*, const int64_t*, int64_t, int64_t, Acc*, Acc*, \
                                           Acc*);                                                  \
  template void cross_entropy_gradient<T, Acc>(const T*, const int64_t*, const Acc*, const Acc*,   \
                                               Acc, int64_t, int64_t, T*)
// NOLINTEND(bugprone-macro-parentheses)
TANREN_CROSS_ENTROPY(float, float);
TANREN_CROSS_ENTROPY(double, double);
TANREN_CROSS_ENTROPY(c10::Half, float);
TANREN_CROSS_ENTROPY(c10::BFloat16, float);
#undef TANREN_CROSS_ENTROPY

}  // namespace tanren
