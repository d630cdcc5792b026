// The loops of blocked_attention.h over one block of rows of one head. It uses no tensors, so that
// the file builds fast and vectorises. Single-threaded: blocked_attention.cpp, which runs the heads
// in parallel, and attention_bf16.cpp call it.
#pragma once

#include <array>
#include <cstdint>

namespace tanren {

// Rows [first_row, first_row + rows) of a head against columns [0, cols), row-major and dense.
// Either row r sees the columns up to r (cols is at least first_row + rows), or all rows see the
// same columns.
struct AttentionBlock {
  int64_t first_row, rows, cols;
  int64_t seen_by_all;  // number of columns that every row sees; 0: row r sees those up to r
  const float* bias;    // added to the scaled scores of each seen column; null: none
  double scale;         // multiplies the scores: 1 / √d
  // Dropout: weight (r, c) is kept iff draw number first_draw + r row_draws + c is at least the
  // threshold; 0 keeps all. first_draw and row_draws are multiples of 64 and do not depend on the
  // sequence length (dropout.h).
  uint32_t threshold;
  double keep_scale;  // multiplies the kept weights: 1 / (1 - p)
  std::array<uint32_t, 2> key;
  int64_t id, first_draw, row_draws;
};

// S and T: the same of float, double, c10::Half and c10::BFloat16, or S float and T c10::BFloat16.
// Acc: the type of the arithmetic, double or float.
// weights[i] = softmax(scale * scores + bias) after dropout; may be the scores' memory.
// log_sums[row] = the logarithm of the softmax's divisor.
template <typename S, typename T, typename Acc>
void attention_weights(const AttentionBlock& block, const S* scores, T* weights, Acc* log_sums);

// In: scores, and the gradient of the weights after dropout. Out: the weights after dropout, and in
// slopes the gradient of the products q kᵀ; these may be the memory of scores and gradients.
// deltas[row] = Σ over a row of gradient · output.
template <typename S, typename T, typename Acc>
void attention_gradient(const AttentionBlock& block, const S* scores, const S* gradients,
                        const Acc* log_sums, const Acc* deltas, T* weights, T* slopes);

}  // namespace tanren
