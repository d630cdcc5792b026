#include "tanren/ops/rows.h"

#include "tanren/ops/bfloat_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

// Each function's loop is compiled for AVX2 and for the baseline; the call chooses.
#if defined(__x86_64__)
#define TANREN_ROW(call, parameters, body)                         \
  namespace {                                                      \
  [[gnu::target("avx2,fma")]] void call##_avx2 parameters { body } \
  void call##_plain parameters { body }                            \
  }
#define TANREN_BEST(call) (has_avx2() ? call##_avx2 : call##_plain)
#else
#define TANREN_ROW(call, parameters, body) \
  namespace {                              \
  void call##_plain parameters { body }    \
  }
#define TANREN_BEST(call) call##_plain
#endif

namespace tanren {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") > 0 && __builtin_cpu_supports("fma") > 0;
  return has;
}
#endif

// exp without a branch, so that loops over it vectorise: a polynomial on |r| ≤ ln 2 / 2 with
// Cephes' coefficients, times a power of two.
[[gnu::always_inline]] inline float quick_exp(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const float count = std::nearbyint(clamped * 1.44269504088896341f);
  const float r = (clamped - count * 0.693359375f) - count * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  const auto power = std::bit_cast<float>((static_cast<int32_t>(count) + 127) << 23);
  return x < -87.0f ? 0.0f : y * power;
}

// GELU (tanh) is x times this factor: the logistic function of 2 √(2/π) (x + 0.044715 x³).
constexpr float kGeluSlope = 1.5957691216057308f;
constexpr float kGeluCube = 0.044715f;
[[gnu::always_inline]] inline float gelu_share(float x) {
  const float z = kGeluSlope * (x + kGeluCube * x * x * x);
  const float small = quick_exp(z > 0 ? -z : z);
  return (z > 0 ? 1.0f : small) / (1.0f + small);
}
[[gnu::always_inline]] inline float gelu_slope(float x) {
  const float share = gelu_share(x);
  const float inner = kGeluSlope * (1.0f + 3.0f * kGeluCube * x * x);
  return share + x * share * (1.0f - share) * inner;
}

}  // namespace

// A body is compiled twice and runs once.
// NOLINTBEGIN(bugprone-macro-repeated-side-effects)
TANREN_ROW(
    gelu_bfloats, (const uint16_t* x, int64_t count, uint16_t* y),
    for (int64_t i = 0; i < count; ++i) {
      const float value = from_bfloat16(x[i]);
      y[i] = bfloat16_bits(value * gelu_share(value));
    })
TANREN_ROW(
    gelu_gradient_bfloats,
    (const uint16_t* x, const uint16_t* gradient, int64_t count, uint16_t* out),
    for (int64_t i = 0; i < count; ++i) {
      out[i] = bfloat16_bits(from_bfloat16(gradient[i]) * gelu_slope(from_bfloat16(x[i])));
    })
TANREN_ROW(exp_floats, (const float* x, float scale, float shift, int64_t count, float* out),
           for (int64_t i = 0; i < count; ++i) out[i] = quick_exp(x[i] * scale - shift);)
TANREN_ROW(
    load_bfloats, (const uint16_t* from, int64_t count, float* to),
    for (int64_t i = 0; i < count; ++i) { to[i] = from_bfloat16(from[i]); })
TANREN_ROW(store_bfloats, (const float* from, float factor, int64_t count, uint16_t* to),
           for (int64_t i = 0; i < count; ++i) to[i] = bfloat16_bits(from[i] * factor);)
// NOLINTEND(bugprone-macro-repeated-side-effects)

void exp_row(const float* x, float scale, float shift, int64_t count, float* out) {
  TANREN_BEST(exp_floats)(x, scale, shift, count, out);
}
void exp_row(const double* x, double scale, double shift, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = std::exp(x[i] * scale - shift);
}

void gelu_tanh_row(const c10::BFloat16* x, int64_t count, c10::BFloat16* y) {
  TANREN_BEST(gelu_bfloats)
  (reinterpret_cast<const uint16_t*>(x), count, reinterpret_cast<uint16_t*>(y));
}
void gelu_tanh_gradient_row(const c10::BFloat16* x, const c10::BFloat16* gradient, int64_t count,
                            c10::BFloat16* out) {
  TANREN_BEST(gelu_gradient_bfloats)
  (reinterpret_cast<const uint16_t*>(x), reinterpret_cast<const uint16_t*>(gradient), count,
   reinterpret_cast<uint16_t*>(out));
}

void load_row(const c10::BFloat16* from, int64_t count, float* to) {
  TANREN_BEST(load_bfloats)(reinterpret_cast<const uint16_t*>(from), count, to);
}
void load_row(const c10::Half* from, int64_t count, float* to) {
  std::copy(from, from + count, to);
}
void load_row(const float* from, int64_t count, float* to) { std::copy(from, from + count, to); }
void load_row(const double* from, int64_t count, double* to) { std::copy(from, from + count, to); }

void store_row(const float* from, float factor, int64_t count, c10::BFloat16* to) {
  TANREN_BEST(store_bfloats)(from, factor, count, reinterpret_cast<uint16_t*>(to));
}
void store_row(const float* from, float factor, int64_t count, c10::Half* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = c10::Half(from[i] * factor);
}
void store_row(const float* from, float factor, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}
void store_row(const double* from, double factor, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

}  // namespace tanren
