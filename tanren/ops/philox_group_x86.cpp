#include "tanren/ops/philox_group.h"

#include <immintrin.h>

namespace tanren {
namespace {

constexpr int kVectors = 4;  // of 4 blocks each; enough in flight to hide the multiplier's latency

// A block's word sits in the low half of a 64-bit lane. The high halves hold leftovers, which the
// 32 × 32 → 64 multiplication ignores and the final merge drops.
struct Words {
  __m256i c0, c1, c2, c3;
};

[[gnu::target("avx2")]] void draw_group_avx2(std::array<uint32_t, 2> key, uint64_t first,
                                             int64_t id, uint32_t* values) {
  const __m256i a_factor = _mm256_set1_epi64x(0xD2511F53);
  const __m256i b_factor = _mm256_set1_epi64x(0xCD9E8D57);
  Words words[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    words[v].c0 = _mm256_add_epi32(
        _mm256_set1_epi64x(static_cast<uint32_t>(first) + 4 * static_cast<uint32_t>(v)),
        _mm256_setr_epi64x(0, 1, 2, 3));
    words[v].c1 = _mm256_set1_epi64x(static_cast<uint32_t>(first >> 32));
    words[v].c2 = _mm256_set1_epi64x(id);
    words[v].c3 = _mm256_set1_epi64x(static_cast<int64_t>(static_cast<uint64_t>(id) >> 32));
  }
  for (int round = 0; round < 10; ++round) {
    const __m256i key0 = _mm256_set1_epi64x(key[0]);
    const __m256i key1 = _mm256_set1_epi64x(key[1]);
    for (Words& w : words) {
      const __m256i a = _mm256_mul_epu32(w.c0, a_factor);
      const __m256i b = _mm256_mul_epu32(w.c2, b_factor);
      w.c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(b, 32), w.c1), key0);
      w.c1 = b;
      w.c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(a, 32), w.c3), key1);
      w.c3 = a;
    }
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  auto* out = reinterpret_cast<__m256i*>(values);
  for (const Words& w : words) {
    // Merges the low halves of c0 and c1, and of c2 and c3, then stores each block's pairs in
    // order.
    const __m256i front = _mm256_blend_epi32(w.c0, _mm256_slli_epi64(w.c1, 32), 0xAA);
    const __m256i back = _mm256_blend_epi32(w.c2, _mm256_slli_epi64(w.c3, 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(front, back);
    const __m256i odd = _mm256_unpackhi_epi64(front, back);
    _mm256_storeu_si256(out++, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out++, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}

}  // namespace

DrawGroup best_draw_group() {
  return __builtin_cpu_supports("avx2") > 0 ? draw_group_avx2 : draw_group_portable;
}

}  // namespace tanren
