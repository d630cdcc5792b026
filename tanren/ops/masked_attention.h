// Self-attention of an encoder: every token sees every other but padding. Dropout of the attention
// weights is drawn by counter (dropout.h, kRowDraws), so that neither the split nor padding can change
// it. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// [n, T] of 1 and 0, any integer, bool or floating dtype, where 0 is padding → what is added to
// scores of `dtype`, [n, 1, 1, T]: 0, or the lowest number there is. A sample of padding alone stays
// finite: each token counts the same.
at::Tensor padding_bias(const at::Tensor& mask, at::ScalarType dtype);

// q, k, v [n, T, width], each of num_heads heads (which divide width); `bias` of padding_bias, or
// undefined. Gives [n, T, width] in q's dtype. p as for dropout(). Differentiable, with dropout on
// the CPU once.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& bias, int64_t num_heads, double p, uint64_t site,
                            bool training);

// The same, in training, in plain ATen operations with T × T weights: the reference, and CUDA's path.
at::Tensor masked_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& bias, int64_t num_heads, double p,
                                      uint64_t site);

}  // namespace tanren
