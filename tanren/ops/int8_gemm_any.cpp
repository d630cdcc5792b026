#include "tanren/ops/int8_gemm_kernels.h"

namespace tanren {

bool has_int8_avx2() { return false; }

void int8_gemm_avx2(const Int8Shape& shape, const uint8_t* a, const int8_t* packed, int32_t* c,
                    bool add) {
  int8_gemm_plain(shape, a, packed, c, add);
}

bool may_have_int8_onednn() { return false; }

}  // namespace tanren
