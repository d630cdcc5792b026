// The loops of fake quantisation, over plain memory. Called by fake_quantize.cpp alone.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tanren {

// Whole numbers of steps, from low to high.
template <class S>
struct FakeSteps {
  S scale, inverse, low, high;
};

// y[i] = round(clamp(x[i] × inverse)) × scale, ties to even.
void fake_quantize_row(const float* x, int64_t count, const FakeSteps<float>& steps, float* y);
void fake_quantize_row(const c10::BFloat16* x, int64_t count, const FakeSteps<float>& steps,
                       c10::BFloat16* y);
void fake_quantize_row(const double* x, int64_t count, const FakeSteps<double>& steps, double* y);

// dx[i] = gradient[i] where x[i] was not clamped, else 0. Returns Σ gradient × the slope of y
// with respect to the scale, always summed in the same order.
double fake_quantize_gradient(const float* x, const float* gradient, int64_t count,
                              const FakeSteps<float>& steps, float* dx);
double fake_quantize_gradient(const c10::BFloat16* x, const c10::BFloat16* gradient, int64_t count,
                              const FakeSteps<float>& steps, c10::BFloat16* dx);
double fake_quantize_gradient(const double* x, const double* gradient, int64_t count,
                              const FakeSteps<double>& steps, double* dx);

}  // namespace tanren
