// Products of small matrices of 8-bit whole numbers, unsigned × signed, summed in int32: exact, on
// every processor. One thread, plain memory. With AVX512-VNNI or AMX they call oneDNN's kernels,
// else tanren's own loops (AVX2 or plain). block_gemm.h does the same for bf16. Called by
// int8_product.cpp alone. Thread-safe.
//
// The path through oneDNN has not run yet, because no processor for it was at hand. It is used only
// if a probe finds that it gives the plain loop's numbers for extreme values.
#pragma once

#include <cstdint>
#include <string_view>

namespace tanren {

// The kernel of int8_gemm on this processor, determined once per process.
enum class Int8Kernel { plain, avx2, onednn };
Int8Kernel int8_kernel();

// "AMX", "VNNI", "AVX2 alone: plain integer loops": for reports. `has_amx`: the processor has
// AMX's 8-bit products, which oneDNN then takes.
std::string_view int8_kernel_text(Int8Kernel kernel, bool has_amx);

// The longest sum that int32 holds for all values: 255 × 128 × 65 000 < 2³¹.
constexpr int64_t kMaxInt8Depth = 65000;

// Packs the right factor B, k × n, from its transpose, n × k with rows `stride` bytes apart:
// ⌈k / 4⌉ rows of `row` groups, each group four successive elements of a column. Zeros fill the
// last row and the columns from n on.
void pack_int8_columns(const int8_t* b, int64_t stride, int64_t n, int64_t k, int64_t row,
                       int8_t* packed);

// c = a b, or c += a b with `add`. a: m × k with k a multiple of 4, at most kMaxInt8Depth; rows
// a_stride bytes apart. b: packed, k × n, rows b_row groups apart. c: m × n, rows c_stride elements
// apart. A sum of `add` must fit int32, too.
struct Int8Shape {
  int64_t m, n, k, a_stride, b_row, c_stride;
};
void int8_gemm(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
               bool add);

// Call this once after a thread's last product: it releases the AMX registers.
void end_int8_gemm();

}  // namespace tanren
