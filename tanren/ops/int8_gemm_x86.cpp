#include "tanren/ops/int8_gemm_kernels.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace tanren {
namespace {

constexpr int64_t kColumns = 8;  // of one vector of packed values
constexpr int64_t kDepth = 256;  // of b that stays in the first cache while rows of a pass

// c of kRows × 8. Values are widened to 16 bits, because the 8-bit product of AVX2 saturates.
template <int kRows>
[[gnu::target("avx2")]] void tile(const Int8Shape& shape, int64_t k, const uint8_t* a,
                                  const int8_t* b, int32_t* c, bool add) {
  __m256i low[kRows], high[kRows];
  for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_si256();
  for (int64_t i = 0; i < k; i += 4, b += 4 * shape.b_row) {
    const auto* four = reinterpret_cast<const __m128i*>(b);  // columns of four values each
    const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(four));
    const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(four + 1));
    for (int r = 0; r < kRows; ++r) {
      int32_t bytes = 0;
      std::memcpy(&bytes, a + r * shape.a_stride + i, sizeof(bytes));
      const __m256i factor = _mm256_cvtepu8_epi16(_mm_set1_epi32(bytes));
      low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(factor, first));
      high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(factor, second));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    // The sums of pairs, in the order of columns 0 1 4 5 2 3 6 7.
    const __m256i pairs = _mm256_hadd_epi32(low[r], high[r]);
    __m256i sums = _mm256_permute4x64_epi64(pairs, 0xD8);
    auto* to = reinterpret_cast<__m256i*>(c + r * shape.c_stride);
    if (add) sums = _mm256_add_epi32(sums, _mm256_loadu_si256(to));
    _mm256_storeu_si256(to, sums);
  }
}

[[gnu::target("avx2")]] void all_rows(const Int8Shape& shape, int64_t k, const uint8_t* a,
                                      const int8_t* b, int32_t* c, bool add) {
  int64_t r = 0;
  for (; r + 4 <= shape.m; r += 4) {
    tile<4>(shape, k, a + r * shape.a_stride, b, c + r * shape.c_stride, add);
  }
  a += r * shape.a_stride;
  c += r * shape.c_stride;
  if (shape.m - r == 3) tile<3>(shape, k, a, b, c, add);
  if (shape.m - r == 2) tile<2>(shape, k, a, b, c, add);
  if (shape.m - r == 1) tile<1>(shape, k, a, b, c, add);
}

}  // namespace

bool has_int8_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") > 0;
  return has;
}

void int8_gemm_avx2(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                    bool add) {
  const int64_t whole = shape.n / kColumns * kColumns;
  for (int64_t from = 0; from < shape.k; from += kDepth) {
    const int64_t k = std::min(kDepth, shape.k - from);
    for (int64_t column = 0; column < whole; column += kColumns) {
      all_rows(shape, k, a + from, packed + from * shape.b_row + 4 * column, c + column,
               add || from > 0);
    }
  }
  if (whole == shape.n) return;
  Int8Shape rest = shape;
  rest.n = shape.n - whole;
  int8_gemm_plain(rest, a, packed + 4 * whole, c + whole, add);
}

bool may_have_int8_onednn() { return __builtin_cpu_supports("avx512vnni") > 0; }

}  // namespace tanren
