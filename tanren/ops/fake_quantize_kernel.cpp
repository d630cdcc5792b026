#include "tanren/ops/fake_quantize_kernel.h"

#include "tanren/ops/bfloat_bits.h"

#include <array>

#if defined(__x86_64__)
#define TANREN_FAKE_AVX2 [[gnu::target("avx2")]]
#define TANREN_FAKE_BEST(body, ...) (has_avx2_fake() ? body##_avx2(__VA_ARGS__) : body(__VA_ARGS__))
#else
#define TANREN_FAKE_AVX2
#define TANREN_FAKE_BEST(body, ...) body(__VA_ARGS__)
#endif

namespace tanren {
namespace {

#if defined(__x86_64__)
bool has_avx2_fake() {
  static const bool has = __builtin_cpu_supports("avx2") > 0;
  return has;
}
#endif

[[gnu::always_inline]] inline float number(float x) { return x; }
[[gnu::always_inline]] inline double number(double x) { return x; }
[[gnu::always_inline]] inline float number(uint16_t x) { return from_bfloat16(x); }
[[gnu::always_inline]] inline void put(float x, float& to) { to = x; }
[[gnu::always_inline]] inline void put(double x, double& to) { to = x; }
[[gnu::always_inline]] inline void put(float x, uint16_t& to) { to = bfloat16_bits(x); }

// Adding and subtracting 1.5 × 2²³ (2⁵²) rounds a small number to nearest even; a NaN stays.
[[gnu::always_inline]] inline float rounded(float x) { return x + 12582912.0f - 12582912.0f; }
[[gnu::always_inline]] inline double rounded(double x) {
  return x + 6755399441055744.0 - 6755399441055744.0;
}

template <class S>
[[gnu::always_inline]] inline S clamped(S x, const FakeSteps<S>& steps) {
  const S above = x < steps.low ? steps.low : x;
  return above > steps.high ? steps.high : above;
}

template <class T, class S>
[[gnu::always_inline]] inline void faked(const T* x, int64_t count, const FakeSteps<S>& of, T* y) {
  const FakeSteps<S> steps = of;
  for (int64_t i = 0; i < count; ++i) {
    put(rounded(clamped(number(x[i]) * steps.inverse, steps)) * steps.scale, y[i]);
  }
}

constexpr int64_t kLanes = 8;  // sums that grow side by side

template <class T, class S>
[[gnu::always_inline]] inline double unfaked(const T* x, const T* gradient, int64_t count,
                                             const FakeSteps<S>& of, T* dx) {
  const FakeSteps<S> steps = of;
  std::array<double, kLanes> sums{};
  const auto one = [&](int64_t i) __attribute__((always_inline)) {
    const S ratio = number(x[i]) * steps.inverse, within = clamped(ratio, steps);
    const bool passes = ratio == within;
    const S slope = rounded(within) - (passes ? ratio : S{0});
    dx[i] = passes ? gradient[i] : T{0};
    return static_cast<double>(number(gradient[i]) * slope);
  };
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += one(i + lane);
    }
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (int64_t i = whole; i < count; ++i) total += one(i);
  return total;
}

template <class T, class S>
TANREN_FAKE_AVX2 void faked_avx2(const T* x, int64_t count, const FakeSteps<S>& steps, T* y) {
  faked(x, count, steps, y);
}
template <class T, class S>
TANREN_FAKE_AVX2 double unfaked_avx2(const T* x, const T* gradient, int64_t count,
                                     const FakeSteps<S>& steps, T* dx) {
  return unfaked(x, gradient, count, steps, dx);
}

const uint16_t* raw(const c10::BFloat16* x) { return reinterpret_cast<const uint16_t*>(x); }
uint16_t* raw(c10::BFloat16* x) { return reinterpret_cast<uint16_t*>(x); }

}  // namespace

void fake_quantize_row(const float* x, int64_t count, const FakeSteps<float>& steps, float* y) {
  TANREN_FAKE_BEST(faked, x, count, steps, y);
}
void fake_quantize_row(const c10::BFloat16* x, int64_t count, const FakeSteps<float>& steps,
                       c10::BFloat16* y) {
  TANREN_FAKE_BEST(faked, raw(x), count, steps, raw(y));
}
void fake_quantize_row(const double* x, int64_t count, const FakeSteps<double>& steps, double* y) {
  TANREN_FAKE_BEST(faked, x, count, steps, y);
}

double fake_quantize_gradient(const float* x, const float* gradient, int64_t count,
                              const FakeSteps<float>& steps, float* dx) {
  return TANREN_FAKE_BEST(unfaked, x, gradient, count, steps, dx);
}
double fake_quantize_gradient(const c10::BFloat16* x, const c10::BFloat16* gradient, int64_t count,
                              const FakeSteps<float>& steps, c10::BFloat16* dx) {
  return TANREN_FAKE_BEST(unfaked, raw(x), raw(gradient), count, steps, raw(dx));
}
double fake_quantize_gradient(const double* x, const double* gradient, int64_t count,
                              const FakeSteps<double>& steps, double* dx) {
  return TANREN_FAKE_BEST(unfaked, x, gradient, count, steps, dx);
}

}  // namespace tanren
