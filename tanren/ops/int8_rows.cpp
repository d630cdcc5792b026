#include "tanren/ops/int8_rows.h"

#include "tanren/ops/bfloat_bits.h"

#include <bit>
#include <limits>

// Each loop is compiled for AVX-512, for AVX2 and for the baseline; the call chooses. FMA is not
// used, because its results would differ between processors (-ffp-contract=off).
#if defined(__x86_64__)
#define TANREN_INT8_AVX2 [[gnu::target("avx2")]]
#define TANREN_INT8_AVX512 \
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#define TANREN_INT8_BEST(body, ...)                         \
  (best_rows() == Best::avx512 ? body##_avx512(__VA_ARGS__) \
   : best_rows() == Best::avx2 ? body##_avx2(__VA_ARGS__)   \
                               : body(__VA_ARGS__))
#else
#define TANREN_INT8_BEST(body, ...) body(__VA_ARGS__)
#endif

namespace tanren {
namespace {

#if defined(__x86_64__)
enum class Best { plain, avx2, avx512 };

Best best_rows() {
  static const Best best = [] {
    const bool wide =
        __builtin_cpu_supports("avx512f") > 0 && __builtin_cpu_supports("avx512bw") > 0 &&
        __builtin_cpu_supports("avx512dq") > 0 && __builtin_cpu_supports("avx512vl") > 0;
    return wide ? Best::avx512 : __builtin_cpu_supports("avx2") > 0 ? Best::avx2 : Best::plain;
  }();
  return best;
}
#endif

// A bfloat16 is its 16 bits here.
[[gnu::always_inline]] inline float wide(float x) { return x; }
[[gnu::always_inline]] inline float wide(uint16_t x) { return from_bfloat16(x); }
[[gnu::always_inline]] inline void narrow_to(float x, float& to) { to = x; }
[[gnu::always_inline]] inline void narrow_to(float x, uint16_t& to) { to = bfloat16_bits(x); }

// The largest magnitude's bits, by whole numbers, so that a NaN counts as the largest.
template <class T>
[[gnu::always_inline]] inline float largest_magnitude(const T* x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t magnitude = std::bit_cast<int32_t>(wide(x[i])) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

// 1.5 × 2²³: a sum with it has no room for fractions, so adding it rounds to nearest even, and its
// low bits are the whole number.
constexpr float kRounder = 12582912.0f;
constexpr int32_t kRounderBits = 0x4B400000;

template <class T>
[[gnu::always_inline]] inline void to_bytes(const T* x, int64_t count, float inverse,
                                            int32_t zero_point, uint8_t* bytes) {
  const float low = static_cast<float>(-zero_point), high = static_cast<float>(255 - zero_point);
  for (int64_t i = 0; i < count; ++i) {
    float scaled = wide(x[i]) * inverse;
    scaled = scaled < low ? low : scaled;
    scaled = scaled > high ? high : scaled;
    const int32_t whole = std::bit_cast<int32_t>(scaled + kRounder) - kRounderBits;
    bytes[i] = static_cast<uint8_t>(whole + zero_point);
  }
}

template <class T>
[[gnu::always_inline]] inline float quantized(const T* x, int64_t count, const ByteRange& range,
                                              uint8_t* bytes) {
  const float largest = largest_magnitude(x, count);
  if (!(largest <= std::numeric_limits<float>::max())) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (!range.dynamic) {
    to_bytes(x, count, 1.0f / range.scale, range.zero_point, bytes);
    return range.scale;
  }
  const float scale = largest / 127.0f;
  const bool is_zero = scale < std::numeric_limits<float>::min();
  to_bytes(x, count, is_zero ? 0.0f : 1.0f / scale, range.zero_point, bytes);
  return is_zero ? 0.0f : scale;
}

template <class Sum>
[[gnu::always_inline]] inline void scaled(const Sum* sums, const ColumnScales& of, int64_t count,
                                          bool add, float* total) {
  // Copies, because the members of a reference would be read again after each store.
  const int32_t* columns = of.columns;
  const float* scales = of.scales;
  const Sum zero_point = of.zero_point;
  if (add) {
    for (int64_t i = 0; i < count; ++i) {
      total[i] += static_cast<float>(sums[i] - zero_point * columns[i]) * scales[i];
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      total[i] = static_cast<float>(sums[i] - zero_point * columns[i]) * scales[i];
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void finished(const float* total, float scale, const float* bias,
                                            int64_t count, T* out) {
  if (bias != nullptr) {
    for (int64_t i = 0; i < count; ++i) narrow_to(total[i] * scale + bias[i], out[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) narrow_to(total[i] * scale, out[i]);
  }
}

// scaled() and finished() in one pass.
template <class T>
[[gnu::always_inline]] inline void finished_sums(const int32_t* sums, const int32_t* zeros,
                                                 const float* scales, float scale,
                                                 const float* bias, int64_t count, T* out) {
  if (bias != nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const float total = static_cast<float>(sums[i] - zeros[i]) * scales[i];
      narrow_to(total * scale + bias[i], out[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      narrow_to(static_cast<float>(sums[i] - zeros[i]) * scales[i] * scale, out[i]);
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void expanded(const int8_t* values, float scale, int64_t count,
                                            T* out) {
  for (int64_t i = 0; i < count; ++i) narrow_to(static_cast<float>(values[i]) * scale, out[i]);
}

#if defined(__x86_64__)
template <class T>
TANREN_INT8_AVX2 float quantized_avx2(const T* x, int64_t count, const ByteRange& range,
                                      uint8_t* bytes) {
  return quantized(x, count, range, bytes);
}
template <class Sum>
TANREN_INT8_AVX2 void scaled_avx2(const Sum* sums, const ColumnScales& of, int64_t count, bool add,
                                  float* total) {
  scaled(sums, of, count, add, total);
}
template <class T>
TANREN_INT8_AVX2 void finished_avx2(const float* total, float scale, const float* bias,
                                    int64_t count, T* out) {
  finished(total, scale, bias, count, out);
}
template <class T>
TANREN_INT8_AVX2 void finished_sums_avx2(const int32_t* sums, const int32_t* zeros,
                                         const float* scales, float scale, const float* bias,
                                         int64_t count, T* out) {
  finished_sums(sums, zeros, scales, scale, bias, count, out);
}
template <class T>
TANREN_INT8_AVX2 void expanded_avx2(const int8_t* values, float scale, int64_t count, T* out) {
  expanded(values, scale, count, out);
}

template <class T>
TANREN_INT8_AVX512 float quantized_avx512(const T* x, int64_t count, const ByteRange& range,
                                          uint8_t* bytes) {
  return quantized(x, count, range, bytes);
}
template <class Sum>
TANREN_INT8_AVX512 void scaled_avx512(const Sum* sums, const ColumnScales& of, int64_t count,
                                      bool add, float* total) {
  scaled(sums, of, count, add, total);
}
template <class T>
TANREN_INT8_AVX512 void finished_avx512(const float* total, float scale, const float* bias,
                                        int64_t count, T* out) {
  finished(total, scale, bias, count, out);
}
template <class T>
TANREN_INT8_AVX512 void finished_sums_avx512(const int32_t* sums, const int32_t* zeros,
                                             const float* scales, float scale, const float* bias,
                                             int64_t count, T* out) {
  finished_sums(sums, zeros, scales, scale, bias, count, out);
}
template <class T>
TANREN_INT8_AVX512 void expanded_avx512(const int8_t* values, float scale, int64_t count, T* out) {
  expanded(values, scale, count, out);
}
#endif

const uint16_t* bits_of(const c10::BFloat16* x) { return reinterpret_cast<const uint16_t*>(x); }
uint16_t* bits_of(c10::BFloat16* x) { return reinterpret_cast<uint16_t*>(x); }

}  // namespace

float quantize_row(const float* x, int64_t count, const ByteRange& range, uint8_t* bytes) {
  return TANREN_INT8_BEST(quantized, x, count, range, bytes);
}
float quantize_row(const c10::BFloat16* x, int64_t count, const ByteRange& range, uint8_t* bytes) {
  return TANREN_INT8_BEST(quantized, bits_of(x), count, range, bytes);
}

void scale_sums(const int32_t* sums, const ColumnScales& of, int64_t count, bool add,
                float* total) {
  TANREN_INT8_BEST(scaled, sums, of, count, add, total);
}
void scale_sums(const int64_t* sums, const ColumnScales& of, int64_t count, bool add,
                float* total) {
  TANREN_INT8_BEST(scaled, sums, of, count, add, total);
}

void finish_row(const float* total, float scale, const float* bias, int64_t count, float* out) {
  TANREN_INT8_BEST(finished, total, scale, bias, count, out);
}
void finish_row(const float* total, float scale, const float* bias, int64_t count,
                c10::BFloat16* out) {
  TANREN_INT8_BEST(finished, total, scale, bias, count, bits_of(out));
}

void finish_sums(const int32_t* sums, const int32_t* zeros, const float* scales, float scale,
                 const float* bias, int64_t count, float* out) {
  TANREN_INT8_BEST(finished_sums, sums, zeros, scales, scale, bias, count, out);
}
void finish_sums(const int32_t* sums, const int32_t* zeros, const float* scales, float scale,
                 const float* bias, int64_t count, c10::BFloat16* out) {
  TANREN_INT8_BEST(finished_sums, sums, zeros, scales, scale, bias, count, bits_of(out));
}

void expand_row(const int8_t* values, float scale, int64_t count, float* out) {
  TANREN_INT8_BEST(expanded, values, scale, count, out);
}
void expand_row(const int8_t* values, float scale, int64_t count, c10::BFloat16* out) {
  TANREN_INT8_BEST(expanded, values, scale, count, bits_of(out));
}

}  // namespace tanren
