// Products of small bf16 matrices, summed in fp32, by one thread on plain memory. They call
// oneDNN's kernels directly, because at these sizes tensors and the dispatcher cost more than the
// product. Called by attention_bf16.cpp alone. Thread-safe.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tanren {

// Whether this processor can run block_gemm: x86 with AVX512-BF16 or AMX.
bool has_block_gemm();

// Both pack the right factor B, k × n, as block_gemm reads it: ⌈k / 2⌉ rows of n pairs, each pair
// two successive elements of a column. If k is odd, the last row is paired with zeros.
// From B itself, whose rows are `stride` elements apart:
void pack_rows(const c10::BFloat16* b, int64_t stride, int64_t k, int64_t n, uint32_t* packed);
// From its transpose, n × k with k even, 4 bytes aligned, with rows `stride` elements apart. The
// packed rows are `row` pairs apart.
void pack_columns(const c10::BFloat16* b, int64_t stride, int64_t n, int64_t k, int64_t row,
                  uint32_t* packed);

// c = a b, or c += a b with `add`. a: m × k with k even, rows a_stride elements apart. b: packed,
// k × n, rows b_row pairs apart. c: m × n, rows c_stride elements apart.
struct BlockShape {
  int64_t m, n, k, a_stride, b_row, c_stride;
};
void block_gemm(const BlockShape& shape, const c10::BFloat16* a, const uint32_t* packed, float* c,
                bool add);

// Call this once after a thread's last product: it releases the AMX registers.
void end_block_gemm();

}  // namespace tanren
