// The ways to compute int8_gemm (int8_gemm.h), each with its arguments. Called by int8_gemm.cpp and
// its test alone.
#pragma once

#include "tanren/ops/int8_gemm.h"

namespace tanren {

void int8_gemm_plain(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                     bool add);

// Whether this processor runs int8_gemm_avx2 (int8_gemm_x86.cpp; on others int8_gemm_any.cpp).
bool has_int8_avx2();
void int8_gemm_avx2(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                    bool add);

// Whether oneDNN may have a kernel for this processor; the probe then checks its numbers.
bool may_have_int8_onednn();
// Throws where oneDNN has no kernel.
void int8_gemm_onednn(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                      bool add);

}  // namespace tanren
