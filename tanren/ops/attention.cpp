#include "tanren/ops/attention.h"

#include "tanren/base/error.h"
#include "tanren/ops/attention_bf16.h"
#include "tanren/ops/attention_kernel.h"
#include "tanren/ops/block_gemm.h"
#include "tanren/ops/draw.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {
namespace {

constexpr int64_t kMaskAlign = 64;
constexpr int64_t kBlockRows = 128;

int64_t padded(int64_t length) { return (length + kMaskAlign - 1) / kMaskAlign * kMaskAlign; }

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

// The fused kernels of torch.
at::Tensor fused_attention(const at::Tensor& qkv, int64_t num_heads, double p) {
  const auto parts = split_heads(qkv, num_heads);
  return merge_heads(at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, p,
                                                      /*is_causal=*/true));
}

// In a thread of at::parallel_for: plain kernels, no graph, no casts.
struct PlainKernelScope {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// One head of one sample, as [T, …] views of the whole tensors.
struct Head {
  Head(const at::Tensor& qkv, int64_t num_heads, int64_t unit)
      : sample(unit / num_heads), index(unit % num_heads), size(qkv.size(2) / 3 / num_heads) {}
  // Its columns of part 0 (q), 1 (k) or 2 (v) of qkv, or of a tensor of one part.
  at::Tensor of(const at::Tensor& x, int64_t part, int64_t width) const {
    return x.select(0, sample).narrow(1, part * width + index * size, size);
  }
  int64_t sample, index, size;
};

// What a thread works in: rows × columns of a block, once as scores and once as their gradient.
struct Scratch {
  Scratch(const at::Tensor& like, int64_t length)
      : first(at::empty({std::min(kBlockRows, length) * length}, like.options())),
        second(at::empty_like(first)) {}
  static at::Tensor view(const at::Tensor& memory, const AttentionBlock& block) {
    return memory.narrow(0, 0, block.rows * block.cols).view({block.rows, block.cols});
  }
  at::Tensor first, second;
};

// Forward and backward of attention with dropout on the CPU. `ids` is contiguous.
class BlockedAttention {
 public:
  BlockedAttention(int64_t num_heads, double p, std::array<uint32_t, 2> key, uint32_t threshold,
                   const at::Tensor& ids)
      : num_heads_(num_heads), p_(p), key_(key), threshold_(threshold), ids_(ids) {}

  // {out [n, T, width], log sums [n, heads, T]}
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& qkv) const {
    const int64_t n = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
    const auto wide = qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor out = at::empty({n, length, width}, qkv.options());
    at::Tensor log_sums = at::empty({n, num_heads_, length}, qkv.options().dtype(wide));
    if (by_blocks(qkv)) {
      auto* sums = log_sums.mutable_data_ptr<float>();
      auto* to = out.mutable_data_ptr<c10::BFloat16>();
      for_each_block_head(qkv, [&](Bf16Attention& attention, const Head& head) {
        attention.forward(view_of(head, qkv), blocks_of(head, length),
                          to + head.sample * length * width + head.index * head.size, width,
                          sums + (head.sample * num_heads_ + head.index) * length);
      });
      return {out, log_sums};
    }
    for_each_head(qkv, [&](const Head& head, const Scratch& scratch) {
      const at::Tensor q = head.of(qkv, 0, width), k = head.of(qkv, 1, width).t();
      const at::Tensor v = head.of(qkv, 2, width), to = head.of(out, 0, width);
      const at::Tensor sums = log_sums.select(0, head.sample).select(0, head.index);
      for (int64_t first = 0; first < length; first += kBlockRows) {
        const AttentionBlock block = block_at(head, first, length);
        at::Tensor weights = Scratch::view(scratch.first, block);
        at::mm_out(weights, q.narrow(0, first, block.rows), k.narrow(1, 0, block.cols));
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, qkv.scalar_type(), "attend", [&] {
          using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
          auto* memory = weights.mutable_data_ptr<scalar_t>();
          attention_weights(block, memory, memory, sums.mutable_data_ptr<Acc>() + first);
        });
        to.narrow(0, first, block.rows).copy_(at::mm(weights, v.narrow(0, 0, block.cols)));
      }
    });
    return {out, log_sums};
  }

  // The gradient of qkv.
  at::Tensor backward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& log_sums,
                      const at::Tensor& gradient) const {
    const int64_t length = qkv.size(1), width = qkv.size(2) / 3;
    const auto wide = log_sums.scalar_type();
    at::Tensor result = at::empty_like(qkv);
    if (by_blocks(qkv)) {
      const at::Tensor own = gradient.contiguous();
      const auto* outs = out.const_data_ptr<c10::BFloat16>();
      const auto* gradients = own.const_data_ptr<c10::BFloat16>();
      const auto* sums = log_sums.const_data_ptr<float>();
      auto* to = result.mutable_data_ptr<c10::BFloat16>();
      for_each_block_head(qkv, [&](Bf16Attention& attention, const Head& head) {
        const int64_t row = head.sample * length * width + head.index * head.size;
        auto* q_gradient = to + head.sample * length * 3 * width + head.index * head.size;
        attention.backward(view_of(head, qkv), blocks_of(head, length), outs + row, gradients + row,
                           width, sums + (head.sample * num_heads_ + head.index) * length,
                           q_gradient, q_gradient + width, q_gradient + 2 * width);
      });
      return result;
    }
    for_each_head(qkv, [&](const Head& head, const Scratch& scratch) {
      const at::Tensor q = head.of(qkv, 0, width), k = head.of(qkv, 1, width);
      const at::Tensor v = head.of(qkv, 2, width), g = head.of(gradient, 0, width);
      const at::Tensor sums = log_sums.select(0, head.sample).select(0, head.index);
      const at::Tensor deltas = (g.to(wide) * head.of(out, 0, width)).sum(1);
      at::Tensor k_sum = at::zeros({length, head.size}, log_sums.options());
      at::Tensor v_sum = at::zeros_like(k_sum);
      for (int64_t first = 0; first < length; first += kBlockRows) {
        const AttentionBlock block = block_at(head, first, length);
        const at::Tensor own_q = q.narrow(0, first, block.rows);
        const at::Tensor own_g = g.narrow(0, first, block.rows);
        at::Tensor weights = Scratch::view(scratch.first, block);
        at::Tensor slopes = Scratch::view(scratch.second, block);
        at::mm_out(weights, own_q, k.narrow(0, 0, block.cols).t());
        at::mm_out(slopes, own_g, v.narrow(0, 0, block.cols).t());
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, qkv.scalar_type(), "attend", [&] {
          using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
          attention_gradient(
              block, weights.const_data_ptr<scalar_t>(), slopes.const_data_ptr<scalar_t>(),
              sums.const_data_ptr<Acc>() + first, deltas.const_data_ptr<Acc>() + first,
              weights.mutable_data_ptr<scalar_t>(), slopes.mutable_data_ptr<scalar_t>());
        });
        head.of(result, 0, width)
            .narrow(0, first, block.rows)
            .copy_(at::mm(slopes, k.narrow(0, 0, block.cols)));
        k_sum.narrow(0, 0, block.cols).add_(at::mm(slopes.t(), own_q));
        v_sum.narrow(0, 0, block.cols).add_(at::mm(weights.t(), own_g));
      }
      head.of(result, 1, width).copy_(k_sum);
      head.of(result, 2, width).copy_(v_sum);
    });
    return result;
  }

 private:
  template <typename F>
  void for_each_head(const at::Tensor& qkv, const F& work) const {
    at::parallel_for(0, qkv.size(0) * num_heads_, 1, [&](int64_t begin, int64_t end) {
      const PlainKernelScope plain;
      const Scratch scratch(qkv, qkv.size(1));
      for (int64_t unit = begin; unit < end; ++unit) work(Head(qkv, num_heads_, unit), scratch);
    });
  }

  bool by_blocks(const at::Tensor& qkv) const {
    return qkv.scalar_type() == at::kBFloat16 && qkv.size(2) / 3 / num_heads_ % 2 == 0 &&
           qkv.numel() > 0 && qkv.is_contiguous() && has_block_gemm();
  }

  template <typename F>
  void for_each_block_head(const at::Tensor& qkv, const F& work) const {
    at::parallel_for(0, qkv.size(0) * num_heads_, 1, [&](int64_t begin, int64_t end) {
      Bf16Attention attention(qkv.size(1), qkv.size(2) / 3 / num_heads_, kBlockRows);
      for (int64_t unit = begin; unit < end; ++unit) work(attention, Head(qkv, num_heads_, unit));
      end_block_gemm();
    });
  }

  HeadView view_of(const Head& head, const at::Tensor& qkv) const {
    const int64_t length = qkv.size(1), row = qkv.size(2), width = row / 3;
    const c10::BFloat16* q =
        qkv.const_data_ptr<c10::BFloat16>() + head.sample * length * row + head.index * head.size;
    return {q, q + width, q + 2 * width, length, head.size, row};
  }

  BlockOf blocks_of(const Head& head, int64_t length) const {
    return [this, head, length](int64_t first, int64_t rows, int64_t cols) {
      return block_of(head, length, first, rows, cols);
    };
  }

  AttentionBlock block_at(const Head& head, int64_t first, int64_t length) const {
    const int64_t rows = std::min(kBlockRows, length - first);
    return block_of(head, length, first, rows, first + rows);
  }

  AttentionBlock block_of(const Head& head, int64_t length, int64_t first, int64_t rows,
                          int64_t cols) const {
    return {.first_row = first,
            .rows = rows,
            .cols = cols,
            .scale = 1 / std::sqrt(static_cast<double>(head.size)),
            .threshold = threshold_,
            .keep_scale = 1 / (1 - p_),
            .key = key_,
            .id = ids_.const_data_ptr<int64_t>()[head.sample],
            .first_draw = head.index * length * padded(length),
            .row_draws = padded(length)};
  }

  int64_t num_heads_;
  double p_;
  std::array<uint32_t, 2> key_;
  uint32_t threshold_;
  at::Tensor ids_;
};

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& qkv,
                            int64_t num_heads, double p, int64_t site) {
    const std::vector<int64_t> sizes = {qkv.size(0), num_heads, qkv.size(1), padded(qkv.size(1))};
    const RandomScope& scope = scope_for(sizes, p);
    const at::Tensor ids = scope.ids().contiguous();
    const DropoutDraw draw = make_draw(scope, ids, sizes, p, static_cast<uint64_t>(site));
    const BlockedAttention attention(num_heads, p, draw.key, draw.threshold, ids);
    const auto [out, log_sums] = attention.forward(qkv);
    context->save_for_backward({qkv, out, log_sums, ids});
    auto& saved = context->saved_data;
    saved["num_heads"] = num_heads;
    saved["p"] = p;
    saved["key0"] = static_cast<int64_t>(draw.key[0]);
    saved["key1"] = static_cast<int64_t>(draw.key[1]);
    saved["threshold"] = static_cast<int64_t>(draw.threshold);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "[ops] attention with dropout can be differentiated once; set attention_dropout to 0 "
          "for second derivatives");
    }
    const auto tensors = context->get_saved_variables();
    auto& saved = context->saved_data;
    const auto word = [&](const char* name) { return static_cast<uint32_t>(saved[name].toInt()); };
    const BlockedAttention attention(saved["num_heads"].toInt(), saved["p"].toDouble(),
                                     {word("key0"), word("key1")}, word("threshold"), tensors[3]);
    return {attention.backward(tensors[0], tensors[1], tensors[2], gradients[0]), {}, {}, {}};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, int64_t num_heads, double p, uint64_t site,
                            bool training) {
  if (!training || p == 0) return fused_attention(qkv, num_heads, 0);
  if (!qkv.device().is_cpu()) return fused_attention(qkv, num_heads, p);
  return AttentionFunction::apply(qkv, num_heads, p, static_cast<int64_t>(site));
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
    const at::Tensor kept = dropout_mask({qkv.size(0), num_heads, length, padded(length)}, p, site)
                                .narrow(3, 0, length);
    weights = weights * kept.to(qkv.device()) * (1 / (1 - p));
  }
  return merge_heads(at::matmul(weights.to(parts[2].scalar_type()), parts[2]));
}

}  // namespace tanren
