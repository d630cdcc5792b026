// The loops of batch_norm.h over rows of channels in plain memory. Parallel over rows; sums are
// taken in blocks of a fixed size, so that the number of threads cannot change them. Called by
// batch_norm.cpp alone.
#pragma once

#include <cstdint>

namespace tanren {

// The norm as a pass applies it: value = x factor + offset, with one factor and offset per channel.
struct NormedRows {
  int64_t rows, channels;
  const float *factor, *offset;
  bool relu;
};

// T: float, or uint16_t for the bits of bfloat16. x, y, …: [rows, channels].

// Mean and variance (divided by rows) of each channel.
template <typename T>
void channel_moments(const T* x, int64_t rows, int64_t channels, double* mean, double* variance);

// y = value + residual (null: none), cut at 0 if relu; a NaN stays.
template <typename T>
void normalise_rows(const NormedRows& norm, const T* x, const T* residual, T* y);

// Sums over the rows of g and of g (x - mean). g is the gradient, or 0 where relu cut: where y is
// 0, or without y, where value is at most 0. With y, g itself is written to `masked`.
template <typename T>
void gradient_sums(const NormedRows& norm, const T* gradient, const T* x, const T* y,
                   const float* mean, T* masked, double* sum, double* dot);

// dx = g of_gradient + x of_x + constant, with three numbers per channel. `is_masked`: gradient is
// g already; otherwise g is computed as in gradient_sums without y.
struct InputSlopes {
  const float *of_gradient, *of_x, *constant;
};
template <typename T>
void input_gradient(const NormedRows& norm, const InputSlopes& slopes, const T* gradient,
                    const T* x, bool is_masked, T* dx);

}  // namespace tanren
