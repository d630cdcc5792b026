#include "tanren/ops/int8_gemm.h"

#include "tanren/ops/int8_gemm_kernels.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace tanren {
namespace {

// Whether oneDNN gives the plain loop's sums, for whole and for partly filled tiles, and for the
// largest and smallest values, whose pairs of products do not fit 16 bits.
bool probe_onednn() {
  for (const Int8Shape& shape :
       {Int8Shape{64, 64, 256, 256, 64, 64}, Int8Shape{3, 20, 76, 80, 32, 24},
        Int8Shape{1, 16, 4, 4, 16, 16}}) {
    std::vector<uint8_t> a(static_cast<size_t>(shape.m * shape.a_stride), 255);
    std::vector<int8_t> b(static_cast<size_t>(shape.k * shape.b_row), -128);
    // The first rows and columns keep the extremes.
    for (size_t i = a.size() / 3; i < a.size(); ++i) a[i] = static_cast<uint8_t>(i * 37 % 256);
    for (size_t i = b.size() / 3; i < b.size(); ++i) b[i] = i % 3 == 0 ? int8_t{127} : int8_t{-1};
    std::vector<int32_t> got(static_cast<size_t>(shape.m * shape.c_stride), 5), wanted = got;
    for (const bool add : {false, true}) {
      int8_gemm_plain(shape, a.data(), b.data(), wanted.data(), add);
      int8_gemm_onednn(shape, a.data(), b.data(), got.data(), add);
    }
    if (got != wanted) return false;
  }
  return true;
}

bool has_onednn() {
  if (!may_have_int8_onednn()) return false;
  // oneDNN reports missing support by throwing when it makes a kernel.
  try {
    const bool right = probe_onednn();
    at::native::cpublas::brgemm_release(true);
    return right;
  } catch (const std::exception&) {
    return false;
  }
}

Int8Kernel best_kernel() {
  if (has_onednn()) return Int8Kernel::onednn;
  return has_int8_avx2() ? Int8Kernel::avx2 : Int8Kernel::plain;
}

}  // namespace

Int8Kernel int8_kernel() {
  static const Int8Kernel best = best_kernel();
  return best;
}

std::string_view int8_kernel_text(Int8Kernel kernel, bool has_amx) {
  switch (kernel) {
    case Int8Kernel::onednn: return has_amx ? "AMX" : "VNNI";
    case Int8Kernel::avx2: return "AVX2 alone: plain integer loops";
    case Int8Kernel::plain: break;
  }
  return "neither AMX, VNNI nor AVX2: plain integer loops";
}

void pack_int8_columns(const int8_t* b, int64_t stride, int64_t n, int64_t k, int64_t row,
                       int8_t* packed) {
  for (int64_t first = 0; first < k; first += 4, packed += 4 * row) {
    const int64_t depth = std::min<int64_t>(4, k - first);
    for (int64_t column = 0; column < row; ++column) {
      int8_t* to = packed + 4 * column;
      const int64_t filled = column < n ? depth : 0;
      if (filled > 0) std::copy_n(b + column * stride + first, filled, to);
      std::fill(to + filled, to + 4, int8_t{0});
    }
  }
}

void int8_gemm_plain(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                     bool add) {
  for (int64_t r = 0; r < shape.m; ++r, a += shape.a_stride, c += shape.c_stride) {
    if (!add) std::fill(c, c + shape.n, 0);
    for (int64_t i = 0; i < shape.k; i += 4) {
      const int8_t* b = packed + i * shape.b_row;
      const int32_t a0 = a[i], a1 = a[i + 1], a2 = a[i + 2], a3 = a[i + 3];
      for (int64_t column = 0; column < shape.n; ++column, b += 4) {
        c[column] += a0 * b[0] + a1 * b[1] + a2 * b[2] + a3 * b[3];
      }
    }
  }
}

void int8_gemm_onednn(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                      bool add) {
  at::native::cpublas::brgemm(shape.m, shape.n, shape.k, shape.a_stride, shape.b_row,
                              shape.c_stride, add, a, packed, c, true);
}

void int8_gemm(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
               bool add) {
  switch (int8_kernel()) {
    case Int8Kernel::onednn: return int8_gemm_onednn(shape, a, packed, c, add);
    case Int8Kernel::avx2: return int8_gemm_avx2(shape, a, packed, c, add);
    case Int8Kernel::plain: return int8_gemm_plain(shape, a, packed, c, add);
  }
}

void end_int8_gemm() {
  if (int8_kernel() == Int8Kernel::onednn) at::native::cpublas::brgemm_release(true);
}

}  // namespace tanren
