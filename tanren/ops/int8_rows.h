// Loops over one row, from which the 8-bit operators are built, in this processor's best
// instructions. Plain memory, no tensors. Every result is that of the same steps in fp32, one
// rounding each, so it depends on no instruction set. Called by the 8-bit operators of this room.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tanren {

// How numbers become bytes: q = x / scale + zero_point, rounded to the nearest, ties to even, and
// clamped to 0 … 255; dynamic: each row has its own scale, its largest magnitude divided by 127,
// and zero point 128. 1 / scale is rounded first.
struct ByteRange {
  bool dynamic = true;
  float scale = 0;
  int32_t zero_point = 128;
};

// Writes the bytes of x; returns the scale. NaN if an element is not finite (the bytes are then
// unspecified), 0 for a dynamic row that is all zeros or below the normal numbers (all bytes 128).
float quantize_row(const float* x, int64_t count, const ByteRange& range, uint8_t* bytes);
float quantize_row(const c10::BFloat16* x, int64_t count, const ByteRange& range, uint8_t* bytes);

// Sums of products of bytes as numbers: total[i] = float(sums[i] - zero_point * columns[i]) *
// scales[i], or += with `add`. The difference must fit int32. `columns`: the sums of the weight's
// columns.
struct ColumnScales {
  const int32_t* columns;
  const float* scales;
  int32_t zero_point;
};
void scale_sums(const int32_t* sums, const ColumnScales& of, int64_t count, bool add, float* total);
void scale_sums(const int64_t* sums, const ColumnScales& of, int64_t count, bool add, float* total);

// out[i] = total[i] * scale + bias[i], rounded once more for bf16; bias may be null.
void finish_row(const float* total, float scale, const float* bias, int64_t count, float* out);
void finish_row(const float* total, float scale, const float* bias, int64_t count,
                c10::BFloat16* out);

// Both in one pass, for sums that nothing is added to: out[i] = float(sums[i] - zeros[i]) *
// scales[i] * scale + bias[i], rounded once more for bf16; bias may be null. `zeros`: the zero
// point times the sums of the weight's columns.
void finish_sums(const int32_t* sums, const int32_t* zeros, const float* scales, float scale,
                 const float* bias, int64_t count, float* out);
void finish_sums(const int32_t* sums, const int32_t* zeros, const float* scales, float scale,
                 const float* bias, int64_t count, c10::BFloat16* out);

// out[i] = values[i] * scale, rounded once more for bf16.
void expand_row(const int8_t* values, float scale, int64_t count, float* out);
void expand_row(const int8_t* values, float scale, int64_t count, c10::BFloat16* out);

}  // namespace tanren
