// Self-attention of an encoder: every token sees all tokens except padding. Dropout of the
// attention weights is counter-based (kRowDraws), so neither the batch split nor padding
// can change it. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// mask [n, T] of any integer, bool or floating dtype, 0 at padding → the bias to add to scores of
// `dtype`, [n, 1, 1, T]: 0, or at padding the lowest finite fp16 or bf16 number. A sample of
// padding alone stays finite: its tokens all get the same weight.
at::Tensor padding_bias(const at::Tensor& mask, at::ScalarType dtype);

// q, k, v [n, T, width], each with num_heads heads (which divide width); `bias` from padding_bias,
// or undefined. Returns [n, T, width] in q's dtype. p as for dropout(). Differentiable; with
// dropout on the CPU only once.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& bias, int64_t num_heads, double p, uint64_t site,
                            bool training);

// The same, in training, in plain ATen operations with T × T weights: the reference, CUDA's path.
at::Tensor masked_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& bias, int64_t num_heads, double p,
                                      uint64_t site);

}  // namespace tanren
