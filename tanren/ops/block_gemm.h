// Products of small bf16 matrices, summed in fp32, by one thread on plain memory: oneDNN's kernels
// without a tensor or a dispatcher around each product, which at these sizes costs more than the
// product. Called by attention_bf16.cpp alone. Thread-safe.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tanren {

// Whether this processor has them: x86 with AVX512-BF16 or AMX.
bool has_block_gemm();

// The right factor B, k × n, as block_gemm reads it: ⌈k / 2⌉ rows of n pairs of successive elements of
// a column; a last row without a partner is paired with zeros.
// From B itself, a row every `stride` elements:
void pack_rows(const c10::BFloat16* b, int64_t stride, int64_t k, int64_t n, uint32_t* packed);
// From its transpose, n × k with k even and a row every `stride` elements, 4 bytes aligned; the n
// pairs of a row are `row` apart from the next row's.
void pack_columns(const c10::BFloat16* b, int64_t stride, int64_t n, int64_t k, int64_t row,
                  uint32_t* packed);

// c = a b, or c += a b. a: m × k with k even, a row every a_stride elements. b: packed, k × n, with
// b_row pairs from one row to the next. c: m × n, a row every c_stride elements.
struct BlockShape {
  int64_t m, n, k, a_stride, b_row, c_stride;
};
void block_gemm(const BlockShape& shape, const c10::BFloat16* a, const uint32_t* packed, float* c,
                bool add);

// Once after a thread's last product: gives AMX's registers back.
void end_block_gemm();

}  // namespace tanren
