#include "tanren/ops/block_gemm.h"

#include <ATen/native/CPUBlas.h>

#include <cstring>
#include <exception>

namespace tanren {
namespace {

// oneDNN reports missing support by throwing when it makes a kernel.
bool probe() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  const c10::BFloat16 a[2] = {c10::BFloat16(3.0f), c10::BFloat16(0.5f)};
  uint32_t packed[1] = {0};
  pack_rows(a, 1, 2, 1, packed);
  float c = 0;
  try {
    block_gemm({.m = 1, .n = 1, .k = 2, .a_stride = 2, .b_row = 1, .c_stride = 1}, a, packed, &c,
               false);
    end_block_gemm();
  } catch (const std::exception&) {
    return false;
  }
  return c == 9.25f;
#else
  return false;
#endif
}

}  // namespace

bool has_block_gemm() {
  static const bool has = probe();
  return has;
}

void pack_rows(const c10::BFloat16* b, int64_t stride, int64_t k, int64_t n, uint32_t* packed) {
  for (int64_t row = 0; row < k; row += 2, packed += n) {
    const c10::BFloat16* even = b + row * stride;
    const c10::BFloat16* odd = even + stride;
    if (row + 1 < k) {
      for (int64_t i = 0; i < n; ++i) {
        packed[i] = even[i].x | static_cast<uint32_t>(odd[i].x) << 16;
      }
    } else {
      for (int64_t i = 0; i < n; ++i) packed[i] = even[i].x;
    }
  }
}

void pack_columns(const c10::BFloat16* b, int64_t stride, int64_t n, int64_t k, int64_t row,
                  uint32_t* packed) {
  constexpr int64_t kTile = 16;  // rows of b that are read in turn
  for (int64_t first = 0; first < n; first += kTile) {
    const int64_t last = first + kTile < n ? first + kTile : n;
    for (int64_t pair = 0; pair < k / 2; ++pair) {
      for (int64_t i = first; i < last; ++i) {
        std::memcpy(packed + pair * row + i, b + i * stride + 2 * pair, sizeof(uint32_t));
      }
    }
  }
}

void block_gemm(const BlockShape& shape, const c10::BFloat16* a, const uint32_t* packed, float* c,
                bool add) {
  at::native::cpublas::brgemm(shape.m, shape.n, shape.k, shape.a_stride, shape.b_row,
                              shape.c_stride, add, a,
                              reinterpret_cast<const c10::BFloat16*>(packed), c, true);
}

void end_block_gemm() { at::native::cpublas::brgemm_release(true); }

}  // namespace tanren
