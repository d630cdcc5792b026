// The loops of dropout.h over raw memory; no tensors, so that the file builds fast and vectorises.
// Parallel over samples and chunks if there is enough work. Called by dropout.cpp alone.
#pragma once

#include <array>
#include <cstdint>

namespace tanren {

// Everything that decides a mask. Element e of a sample is kept iff lane e % 4 of
// philox({e / 4 low, e / 4 high, id low, id high}, key) is at least `threshold`.
struct DropoutDraw {
  std::array<uint32_t, 2> key;
  uint32_t threshold;
  const int64_t* ids;
  int64_t samples;
  int64_t sample_size;  // elements of one sample
};

// mask[i] = kept.
void draw_mask(const DropoutDraw& draw, bool* mask);
// The same for attention weights: row r of head h of a sample begins at element
// (r * heads + h) * row_draws. sample_size = heads * rows * columns.
void draw_attention_mask(const DropoutDraw& draw, int64_t heads, int64_t rows, int64_t row_draws,
                         bool* mask);
// mask[i] = kept; out[i] = x[i] * (kept ? scale : 0), computed in float or double, rounded to T.
// T: float, double, c10::Half, c10::BFloat16.
template <typename T>
void apply_dropout(const DropoutDraw& draw, double scale, const T* x, T* out, bool* mask);

// The same added to a residual, in the residual's precision: R is T, or float for 16-bit T. A null
// mask is not written.
template <typename T, typename R>
void add_dropout_rows(const DropoutDraw& draw, double scale, const R* residual, const T* x, R* out,
                      bool* mask);
// out[i] = gradient[i] * (mask[i] ? scale : 0), rounded to T.
template <typename T, typename R>
void add_dropout_gradient(int64_t count, double scale, const R* gradient, const bool* mask, T* out);

}  // namespace tanren
