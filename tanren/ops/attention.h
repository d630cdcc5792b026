// Causal self-attention of a transformer: softmax(q kᵀ / √d, nothing of the future) v, with dropout
// of the attention weights drawn by counter (dropout.h, kRowDraws), so that neither the split nor
// padding can change it.
// On the CPU by blocked_attention.h. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// qkv [n, T, 3 · width]: queries, keys and values side by side, each of num_heads heads (which
// divide width). Gives [n, T, width] in qkv's dtype. p as for dropout(): 0 unless training, and
// then dim 0 are the samples of the RandomScope. Differentiable, with dropout once. On CUDA dropout
// is the fused kernel's, drawn from torch's generator. Error as dropout().
at::Tensor causal_attention(const at::Tensor& qkv, int64_t num_heads, double p, uint64_t site,
                            bool training);

// The same in plain ATen operations with T × T weights: the reference.
at::Tensor causal_attention_reference(const at::Tensor& qkv, int64_t num_heads, double p,
                                      uint64_t site, bool training);

}  // namespace tanren
