#include "tanren/ops/masked_attention.h"

#include "tanren/dry/dry_scope.h"
#include "tanren/ops/blocked_attention.h"
#include "tanren/ops/dropout_mask.h"

#include <ATen/ATen.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>
#include <optional>

namespace tanren {

at::Tensor padding_bias(const at::Tensor& mask, at::ScalarType dtype) {
  // fp32 too gets bf16's lowest number, which stays finite when cast to bf16.
  const double lowest = dtype == at::kHalf
                            ? static_cast<double>(std::numeric_limits<c10::Half>::lowest())
                            : static_cast<double>(std::numeric_limits<c10::BFloat16>::lowest());
  const at::Tensor padding = mask.eq(0).view({mask.size(0), 1, 1, mask.size(1)});
  return at::zeros(padding.sizes(), mask.options().dtype(dtype)).masked_fill_(padding, lowest);
}

at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& bias, int64_t num_heads, double p, uint64_t site,
                            bool training) {
  const int64_t n = q.size(0), length = q.size(1), width = q.size(2);
  const auto heads = [&](const at::Tensor& x) {
    return x.view({n, length, num_heads, width / num_heads}).transpose(1, 2);
  };
  const auto merge = [](const at::Tensor& x) { return x.transpose(1, 2).flatten(2); };
  if (!training || p == 0) {
    const auto added = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
    return merge(at::scaled_dot_product_attention(heads(q), heads(k), heads(v), added));
  }
  if (has_cpu_kernels(q)) {
    const at::Tensor added =
        bias.defined() ? bias.detach().to(at::kFloat).view({n, length}).contiguous() : bias;
    return blocked_attention(q, k, v, {num_heads, p, site, /*causal=*/false, added});
  }
  return masked_attention_reference(q, k, v, bias, num_heads, p, site);
}

at::Tensor masked_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& bias, int64_t num_heads, double p,
                                      uint64_t site) {
  const int64_t n = q.size(0), length = q.size(1), width = q.size(2);
  const auto heads = [&](const at::Tensor& x) {
    return x.view({n, length, num_heads, width / num_heads}).transpose(1, 2);
  };
  const int64_t head_width = width / num_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(head_width));
  at::Tensor scores = at::matmul(heads(q) * scale, heads(k).transpose(2, 3));
  if (bias.defined()) scores = scores + bias;
  const at::Tensor kept =
      p == 0 ? at::ones_like(scores) : attention_mask(scores.sizes(), p, site, scores.device());
  const at::Tensor weights = scores.softmax(-1) * kept * (1 / (1 - p));
  return at::matmul(weights.to(v.scalar_type()), heads(v)).transpose(1, 2).flatten(2);
}

}  // namespace tanren
