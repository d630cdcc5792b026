// Causal self-attention of a transformer: softmax(q kᵀ / √d, future positions masked) v. Dropout of
// the attention weights is counter-based (dropout.h, kRowDraws), so neither the batch split nor
// padding can change it. On the CPU it runs in blocked_attention.h. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// qkv [n, T, 3 · width]: queries, keys and values side by side, each with num_heads heads (which
// divide width). Returns [n, T, width] in qkv's dtype. p as for dropout(): it counts as 0 unless
// training; otherwise dim 0 is the samples of the RandomScope. Differentiable; with dropout only
// once. On CUDA dropout is the fused kernel's, drawn from torch's generator. Error as dropout().
at::Tensor causal_attention(const at::Tensor& qkv, int64_t num_heads, double p, uint64_t site,
                            bool training);

// The same in plain ATen operations with T × T weights: the reference.
at::Tensor causal_attention_reference(const at::Tensor& qkv, int64_t num_heads, double p,
                                      uint64_t site, bool training);

}  // namespace tanren
