// Attention of one head of one sample in bf16, on plain memory, block by block, with scores and
// sums in fp32 (block_gemm.h). Single-threaded. Called only by blocked_attention.cpp, if
// has_block_gemm().
#pragma once

#include "tanren/ops/attention_kernel.h"

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tanren {

// [T, size] with a row every `stride` elements; size is even.
struct HeadView {
  const c10::BFloat16* q;
  const c10::BFloat16* k;
  const c10::BFloat16* v;
  int64_t length, size, stride;
};

// The block of rows [first, first + rows) with `cols` columns.
using BlockOf = std::function<AttentionBlock(int64_t first, int64_t rows, int64_t cols)>;

// The working memory of one thread, for heads of one shape.
class Bf16Attention {
 public:
  Bf16Attention(int64_t length, int64_t size, int64_t block_rows, bool causal);

  // out: rows are out_stride elements apart. log_sums [T].
  void forward(const HeadView& head, const BlockOf& block_of, c10::BFloat16* out,
               int64_t out_stride, float* log_sums);
  // gradient: of the head's output `out`; the rows of both are out_stride elements apart. The rows
  // of the gradients of q, k and v are written head.stride elements apart.
  void backward(const HeadView& head, const BlockOf& block_of, const c10::BFloat16* out,
                const c10::BFloat16* gradient, int64_t out_stride, const float* log_sums,
                c10::BFloat16* q_gradient, c10::BFloat16* k_gradient, c10::BFloat16* v_gradient);

 private:
  int64_t columns_of(int64_t first, int64_t rows) const;

  int64_t length_, size_, block_rows_, cols_;  // cols_: length_, rounded up to even
  bool causal_;
  std::vector<float> scores_, slopes_, product_, k_sum_, v_sum_, deltas_;
  std::vector<c10::BFloat16> weights_, gradients_, turned_;
  std::vector<uint32_t> first_packed_, second_packed_, key_rows_, block_packed_;
};

}  // namespace tanren
