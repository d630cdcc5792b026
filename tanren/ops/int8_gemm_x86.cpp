#include "tanren/ops/int8_gemm_kernels.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace tanren {
namespace {

constexpr int64_t kColumns = 8;      // columns of c that are computed at a time
constexpr int64_t kDepth = 256;      // rows of b that stay in the first-level cache
constexpr int64_t kRowsAtOnce = 64;  // rows of a that are widened at a time

// kDepth values of a row, in 16 bits: the 8-bit product of AVX2 saturates.
using WideRow = int16_t[kDepth];

[[gnu::target("avx2")]] void widen(const uint8_t* from, int64_t count, int16_t* to) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_cvtepu8_epi16(bytes));
  }
  for (; i < count; ++i) to[i] = from[i];
}

// c of kRows × 8, its rows c_stride apart.
template <int kRows>
[[gnu::target("avx2")]] void tile(int64_t k, const WideRow* a, const int8_t* b, int64_t b_row,
                                  int32_t* c, int64_t c_stride, bool add) {
  __m256i low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_si256();
  for (int64_t i = 0; i < k; i += 4, b += 4 * b_row) {
    const auto* four = reinterpret_cast<const __m128i*>(b);  // columns of four values each
    const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(four));
    const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(four + 1));
    for (int r = 0; r < kRows; ++r) {
      int64_t values = 0;  // four
      std::memcpy(&values, a[r] + i, sizeof(values));
      const __m256i factor = _mm256_set1_epi64x(values);
      low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(factor, first));
      high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(factor, second));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    // The sums of pairs, in the order of columns 0 1 4 5 2 3 6 7.
    const __m256i pairs = _mm256_hadd_epi32(low[r], high[r]);
    __m256i sums = _mm256_permute4x64_epi64(pairs, 0xD8);
    auto* to = reinterpret_cast<__m256i*>(c + r * c_stride);
    if (add) sums = _mm256_add_epi32(sums, _mm256_loadu_si256(to));
    _mm256_storeu_si256(to, sums);
  }
}

// Computes at most six rows at once, because sixteen registers hold the sums of no more.
void all_rows(int64_t rows, int64_t k, const WideRow* a, const int8_t* b, int64_t b_row, int32_t* c,
              int64_t c_stride, bool add) {
  constexpr int64_t kMost = 6;
  for (; rows >= kMost; rows -= kMost, a += kMost, c += kMost * c_stride) {
    tile<kMost>(k, a, b, b_row, c, c_stride, add);
  }
  if (rows == 5) tile<5>(k, a, b, b_row, c, c_stride, add);
  if (rows == 4) tile<4>(k, a, b, b_row, c, c_stride, add);
  if (rows == 3) tile<3>(k, a, b, b_row, c, c_stride, add);
  if (rows == 2) tile<2>(k, a, b, b_row, c, c_stride, add);
  if (rows == 1) tile<1>(k, a, b, b_row, c, c_stride, add);
}

}  // namespace

bool has_int8_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") > 0;
  return has;
}

void int8_gemm_avx2(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                    bool add) {
  const int64_t whole = shape.n / kColumns * kColumns;
  alignas(32) WideRow wide[kRowsAtOnce];
  for (int64_t top = 0; top < shape.m; top += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, shape.m - top);
    int32_t* const sums = c + top * shape.c_stride;
    for (int64_t from = 0; from < shape.k; from += kDepth) {
      const int64_t k = std::min(kDepth, shape.k - from);
      for (int64_t r = 0; r < rows; ++r) {
        widen(a + (top + r) * shape.a_stride + from, k, wide[r]);
      }
      for (int64_t column = 0; column < whole; column += kColumns) {
        all_rows(rows, k, wide, packed + from * shape.b_row + 4 * column, shape.b_row,
                 sums + column, shape.c_stride, add || from > 0);
      }
    }
  }
  if (whole == shape.n) return;
  Int8Shape rest = shape;
  rest.n = shape.n - whole;
  int8_gemm_plain(rest, a, packed + 4 * whole, c + whole, add);
}

bool may_have_int8_onednn() { return __builtin_cpu_supports("avx512vnni") > 0; }

}  // namespace tanren
