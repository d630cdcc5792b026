// Attention with dropout of the weights on the CPU. The weights exist only for a block of rows of
// one head at a time, and backward computes them again, draws included. Called by attention.cpp and
// masked_attention.cpp. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

struct AttentionCall {
  int64_t num_heads;  // divides width
  double p;           // dropout probability, in [0, 1)
  uint64_t site;
  bool causal;      // a row sees the columns up to its own
  at::Tensor bias;  // float [n, T], added to the scores of every row; undefined: 0
};

// q, k, v [n, T, width]; or k and v undefined and q [n, T, 3 · width] with the three side by side.
// Returns [n, T, width] in q's dtype. Dim 0 is the samples of the RandomScope; draws are numbered
// by kRowDraws. Error as dropout(), and if a sample's heads together have more than
// 2^29 rows. Differentiable once in q, k and v.
at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionCall& call);

}  // namespace tanren
