// Loops over one row of numbers, from which other kernels are built, in this processor's best
// instructions. Plain memory, no tensors. Called by the kernels of this room alone.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace tanren {

// out[i] = exp(x[i] * scale - shift), in place if out is x. Float results are within 2 units in the
// last place, and 0 below exp(-87); a NaN stays.
void exp_row(const float* x, float scale, float shift, int64_t count, float* out);
void exp_row(const double* x, double scale, double shift, int64_t count, double* out);

// y[i] = GELU(x[i]) in its tanh form; out[i] = gradient[i] × GELU's slope at x[i]. Computed in
// float, rounded once.
void gelu_tanh_row(const c10::BFloat16* x, int64_t count, c10::BFloat16* y);
void gelu_tanh_gradient_row(const c10::BFloat16* x, const c10::BFloat16* gradient, int64_t count,
                            c10::BFloat16* out);

// to[i] = from[i], exact.
void load_row(const c10::BFloat16* from, int64_t count, float* to);
void load_row(const c10::Half* from, int64_t count, float* to);
void load_row(const float* from, int64_t count, float* to);
void load_row(const double* from, int64_t count, double* to);

// to[i] = from[i] * factor, rounded to nearest even.
void store_row(const float* from, float factor, int64_t count, c10::BFloat16* to);
void store_row(const float* from, float factor, int64_t count, c10::Half* to);
void store_row(const float* from, float factor, int64_t count, float* to);
void store_row(const double* from, double factor, int64_t count, double* to);

}  // namespace tanren
