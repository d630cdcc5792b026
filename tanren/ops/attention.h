// Causal self-attention of a transformer: softmax(q kᵀ / √d, future positions masked) v.
// Dropout is drawn by counters (kRowDraws): no batch split and no padding changes it. With dropout,
// the CPU uses blocked_attention.h, other devices the reference. Called by models. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// qkv [n, T, 3 · width]: queries, keys and values side by side, each with num_heads heads (which
// divide width). Returns [n, T, width] in qkv's dtype. p as for dropout(); it counts as 0 unless
// `training`. If it counts, dim 0 is the samples of the RandomScope. Differentiable; with dropout
// only once. With `fused_dropout`, torch's fused kernel draws from torch's generator instead and
// ignores the site and the samples. Error as dropout().
at::Tensor causal_attention(const at::Tensor& qkv, int64_t num_heads, double p, uint64_t site,
                            bool training, bool fused_dropout = false);

// The same in plain ATen operations with T × T weights: the reference.
at::Tensor causal_attention_reference(const at::Tensor& qkv, int64_t num_heads, double p,
                                      uint64_t site, bool training);

}  // namespace tanren
