// The loops of blocked_attention.h over one block of rows of one head; no tensors, so that the file builds
// fast and vectorises. Single-threaded: blocked_attention.cpp is parallel over heads. Called by it alone.
#pragma once

#include <array>
#include <cstdint>

namespace tanren {

// Rows [first_row, first_row + rows) of a head against columns [0, cols), row-major and dense.
// Row r sees the columns up to r, and cols is at least first_row + rows; or all see the same columns.
struct AttentionBlock {
  int64_t first_row, rows, cols;
  int64_t seen_by_all;  // how many columns every row sees; 0: those up to its own
  const float* bias;    // added to the scaled scores of each seen column; null: none
  double scale;         // of the scores: 1 / √d
  // Dropout: weight (r, c) is kept iff draw number first_draw + r row_draws + c is at least the
  // threshold; 0 keeps all. first_draw and row_draws are multiples of 64 and know no length (dropout.h).
  uint32_t threshold;
  double keep_scale;  // of the kept: 1 / (1 - p)
  std::array<uint32_t, 2> key;
  int64_t id, first_draw, row_draws;
};

// S, T: float, double, c10::Half, c10::BFloat16, the same or S float and T c10::BFloat16; Acc: what
// it is computed in, double or float.
// weights[i] = dropped softmax(scale * scores + bias), may be the scores' memory; log_sums[row] = the
// logarithm of the sum that it was divided by.
template <typename S, typename T, typename Acc>
void attention_weights(const AttentionBlock& block, const S* scores, T* weights, Acc* log_sums);

// In: scores, and the gradient of the dropped weights. Out: the dropped weights, and the gradient of
// the products q kᵀ; may be the memory of the former. deltas[row] = Σ over a row of gradient · output.
template <typename S, typename T, typename Acc>
void attention_gradient(const AttentionBlock& block, const S* scores, const S* gradients,
                        const Acc* log_sums, const Acc* deltas, T* weights, T* slopes);

}  // namespace tanren
