#include "tanren/ops/attention.h"

#include "tanren/dry/dry_scope.h"
#include "tanren/ops/blocked_attention.h"
#include "tanren/ops/dropout_mask.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace tanren {
namespace {

// q, k, v as views [n, heads, T, width / heads].
std::vector<at::Tensor> split_heads(const at::Tensor& qkv, int64_t num_heads) {
  const int64_t n = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  std::vector<at::Tensor> parts = qkv.split(width, 2);
  for (at::Tensor& part : parts) {
    part = part.view({n, length, num_heads, width / num_heads}).transpose(1, 2);
  }
  return parts;
}

at::Tensor merge_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

// torch's fused kernels.
at::Tensor fused_attention(const at::Tensor& qkv, int64_t num_heads, double p) {
  const auto parts = split_heads(qkv, num_heads);
  return merge_heads(at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, p,
                                                      /*is_causal=*/true));
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, int64_t num_heads, double p, uint64_t site,
                            bool training, bool fused_dropout) {
  if (!training || p == 0) return fused_attention(qkv, num_heads, 0);
  if (fused_dropout) return fused_attention(qkv, num_heads, p);
  if (!has_cpu_kernels(qkv)) {
    return causal_attention_reference(qkv, num_heads, p, site, training);
  }
  return blocked_attention(qkv, {}, {}, {num_heads, p, site, /*causal=*/true, {}});
}

at::Tensor causal_attention_reference(const at::Tensor& qkv, int64_t num_heads, double p,
                                      uint64_t site, bool training) {
  const auto parts = split_heads(qkv, num_heads);
  const int64_t length = qkv.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(parts[0].size(3)));
  const at::Tensor future = at::ones({length, length}, qkv.options().dtype(at::kBool)).triu_(1);
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(2, 3)) * scale;
  at::Tensor weights =
      scores.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1);
  if (training && p != 0) {
    const at::Tensor kept = attention_mask(weights.sizes(), p, site, weights.device());
    weights = weights * kept * (1 / (1 - p));
  }
  return merge_heads(at::matmul(weights.to(parts[2].scalar_type()), parts[2]));
}

}  // namespace tanren
