#include "tanren/ops/blocked_attention.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/attention_bf16.h"
#include "tanren/ops/attention_kernel.h"
#include "tanren/ops/block_gemm.h"
#include "tanren/ops/draw.h"
#include "tanren/ops/dropout_mask.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tanren {

namespace {

constexpr int64_t kBlockRows = 128;

// Inside this scope kernels run without autograd graph and without autocast.
struct PlainKernelScope {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// Queries, keys and values, [n, T, width] each, with the same strides.
using Parts = std::array<at::Tensor, 3>;

Parts parts_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (k.defined()) return {q, k, v};
  const int64_t width = q.size(2) / 3;
  return {q.narrow(2, 0, width), q.narrow(2, width, width), q.narrow(2, 2 * width, width)};
}

// One head of one sample.
struct Head {
  int64_t sample, index, size;
  // This head's columns of x [n, T, width], as [T, size].
  at::Tensor of(const at::Tensor& x) const {
    return x.select(0, sample).narrow(1, index * size, size);
  }
  // The first element of these columns in x's memory `data`.
  template <typename T>
  T* begin(T* data, const at::Tensor& x) const {
    return data + sample * x.stride(0) + index * size;
  }
};

// A thread's working memory: rows × columns of a block, once for scores and once for their
// gradient.
struct Scratch {
  Scratch(const at::Tensor& like, int64_t length)
      : first(at::empty({std::min(kBlockRows, length) * length}, like.options())),
        second(at::empty_like(first)) {}
  static at::Tensor view(const at::Tensor& memory, const AttentionBlock& block) {
    return memory.narrow(0, 0, block.rows * block.cols).view({block.rows, block.cols});
  }
  at::Tensor first, second;
};

// The forward and the backward pass of blocked_attention(). `ids`, the samples' ids, is contiguous.
class BlockedAttention {
 public:
  BlockedAttention(const AttentionCall& call, std::array<uint32_t, 2> key, uint32_t threshold,
                   const at::Tensor& ids)
      : call_(call), key_(key), threshold_(threshold), ids_(ids) {}

  // {out [n, T, width], log sums [n, heads, T]}
  std::pair<at::Tensor, at::Tensor> forward(const Parts& parts) const {
    const at::Tensor& q = parts[0];
    const int64_t n = q.size(0), length = q.size(1);
    const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor out = at::empty(q.sizes(), q.options());
    at::Tensor log_sums = at::empty({n, call_.num_heads, length}, q.options().dtype(wide));
    if (by_blocks(parts)) {
      auto* sums = log_sums.mutable_data_ptr<float>();
      auto* to = out.mutable_data_ptr<c10::BFloat16>();
      for_each_block_head(q, [&](Bf16Attention& attention, const Head& head) {
        attention.forward(view_of(head, parts), blocks_of(head, length), head.begin(to, out),
                          out.stride(1), sums_of(sums, head, length));
      });
      return {out, log_sums};
    }
    for_each_head(q, [&](const Head& head, const Scratch& scratch) {
      const at::Tensor own_q = head.of(q), k = head.of(parts[1]).t(), v = head.of(parts[2]);
      const at::Tensor to = head.of(out);
      const at::Tensor sums = log_sums.select(0, head.sample).select(0, head.index);
      for (int64_t first = 0; first < length; first += kBlockRows) {
        const AttentionBlock block = block_at(head, first, length);
        at::Tensor weights = Scratch::view(scratch.first, block);
        at::mm_out(weights, own_q.narrow(0, first, block.rows), k.narrow(1, 0, block.cols));
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, q.scalar_type(), "attend", [&] {
          using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
          auto* memory = weights.mutable_data_ptr<scalar_t>();
          attention_weights(block, memory, memory, sums.mutable_data_ptr<Acc>() + first);
        });
        to.narrow(0, first, block.rows).copy_(at::mm(weights, v.narrow(0, 0, block.cols)));
      }
    });
    return {out, log_sums};
  }

  // Writes the gradients of q, k and v.
  void backward(const Parts& parts, const at::Tensor& out, const at::Tensor& log_sums,
                const at::Tensor& gradient, const Parts& results) const {
    const int64_t length = out.size(1);
    const auto wide = log_sums.scalar_type();
    if (by_blocks(parts)) {
      const at::Tensor own = gradient.contiguous();
      const auto* outs = out.const_data_ptr<c10::BFloat16>();
      const auto* gradients = own.const_data_ptr<c10::BFloat16>();
      const auto* sums = log_sums.const_data_ptr<float>();
      std::array<c10::BFloat16*, 3> to{};
      for (size_t i = 0; i < 3; ++i) to[i] = results[i].mutable_data_ptr<c10::BFloat16>();
      for_each_block_head(parts[0], [&](Bf16Attention& attention, const Head& head) {
        attention.backward(view_of(head, parts), blocks_of(head, length), head.begin(outs, out),
                           head.begin(gradients, own), out.stride(1), sums_of(sums, head, length),
                           head.begin(to[0], results[0]), head.begin(to[1], results[1]),
                           head.begin(to[2], results[2]));
      });
      return;
    }
    for_each_head(parts[0], [&](const Head& head, const Scratch& scratch) {
      const at::Tensor q = head.of(parts[0]), k = head.of(parts[1]), v = head.of(parts[2]);
      const at::Tensor g = head.of(gradient);
      const at::Tensor sums = log_sums.select(0, head.sample).select(0, head.index);
      const at::Tensor deltas = (g.to(wide) * head.of(out)).sum(1);
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
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, q.scalar_type(), "attend", [&] {
          using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
          attention_gradient(
              block, weights.const_data_ptr<scalar_t>(), slopes.const_data_ptr<scalar_t>(),
              sums.const_data_ptr<Acc>() + first, deltas.const_data_ptr<Acc>() + first,
              weights.mutable_data_ptr<scalar_t>(), slopes.mutable_data_ptr<scalar_t>());
        });
        head.of(results[0])
            .narrow(0, first, block.rows)
            .copy_(at::mm(slopes, k.narrow(0, 0, block.cols)));
        k_sum.narrow(0, 0, block.cols).add_(at::mm(slopes.t(), own_q));
        v_sum.narrow(0, 0, block.cols).add_(at::mm(weights.t(), own_g));
      }
      head.of(results[1]).copy_(k_sum);
      head.of(results[2]).copy_(v_sum);
    });
  }

 private:
  Head head_at(const at::Tensor& q, int64_t unit) const {
    return {unit / call_.num_heads, unit % call_.num_heads, q.size(2) / call_.num_heads};
  }

  // One head after another, because each of torch's products uses all threads.
  template <typename F>
  void for_each_head(const at::Tensor& q, const F& work) const {
    const int64_t num_heads = q.size(0) * call_.num_heads;
    if (num_heads == 0) return;
    const PlainKernelScope plain;
    const Scratch scratch(q, q.size(1));
    const int64_t seen = is_dry(q) ? 1 : num_heads;  // all heads need the same memory
    for (int64_t unit = 0; unit < seen; ++unit) work(head_at(q, unit), scratch);
  }

  bool by_blocks(const Parts& parts) const {
    const at::Tensor& q = parts[0];
    if (q.scalar_type() != at::kBFloat16 || q.size(2) / call_.num_heads % 2 != 0 ||
        q.numel() == 0 || !has_block_gemm()) {
      return false;
    }
    return q.stride(2) == 1 && q.stride(1) % 2 == 0 && q.strides() == parts[1].strides() &&
           q.strides() == parts[2].strides();
  }

  template <typename F>
  void for_each_block_head(const at::Tensor& q, const F& work) const {
    if (is_dry(q)) return;
    parallel_for(0, q.size(0) * call_.num_heads, 1, [&](int64_t begin, int64_t end) {
      Bf16Attention attention(q.size(1), q.size(2) / call_.num_heads, kBlockRows, call_.causal);
      for (int64_t unit = begin; unit < end; ++unit) work(attention, head_at(q, unit));
      end_block_gemm();
    });
  }

  static HeadView view_of(const Head& head, const Parts& parts) {
    const auto begin = [&](const at::Tensor& x) {
      return head.begin(x.const_data_ptr<c10::BFloat16>(), x);
    };
    return {begin(parts[0]),  begin(parts[1]), begin(parts[2]),
            parts[0].size(1), head.size,       parts[0].stride(1)};
  }

  template <typename T>
  T* sums_of(T* sums, const Head& head, int64_t length) const {
    return sums + (head.sample * call_.num_heads + head.index) * length;
  }

  BlockOf blocks_of(const Head& head, int64_t length) const {
    return [this, head, length](int64_t first, int64_t rows, int64_t cols) {
      return block_of(head, length, first, rows, cols);
    };
  }

  AttentionBlock block_at(const Head& head, int64_t first, int64_t length) const {
    const int64_t rows = std::min(kBlockRows, length - first);
    return block_of(head, length, first, rows, call_.causal ? first + rows : length);
  }

  AttentionBlock block_of(const Head& head, int64_t length, int64_t first, int64_t rows,
                          int64_t cols) const {
    const float* bias =
        call_.bias.defined() ? call_.bias.const_data_ptr<float>() + head.sample * length : nullptr;
    return {.first_row = first,
            .rows = rows,
            .cols = cols,
            .seen_by_all = call_.causal ? 0 : length,
            .bias = bias,
            .scale = 1 / std::sqrt(static_cast<double>(head.size)),
            .threshold = threshold_,
            .keep_scale = 1 / (1 - call_.p),
            .key = key_,
            .id = ids_.const_data_ptr<int64_t>()[head.sample],
            .first_draw = head.index * kRowDraws,
            .row_draws = call_.num_heads * kRowDraws};
  }

  const AttentionCall& call_;
  std::array<uint32_t, 2> key_;
  uint32_t threshold_;
  at::Tensor ids_;
};

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const std::optional<at::Tensor>& given_k,
                            const std::optional<at::Tensor>& given_v, const AttentionCall& call) {
    const at::Tensor k = given_k.value_or(at::Tensor()), v = given_v.value_or(at::Tensor());
    const Parts parts = parts_of(q, k, v);
    const int64_t length = q.size(1);
    const std::vector<int64_t> sizes = {q.size(0), call.num_heads, length, length};
    const RandomScope& scope = attention_scope_for(sizes, call.p);
    const at::Tensor ids = scope.ids().contiguous();
    const DropoutDraw draw = make_draw(scope, ids, sizes, call.p, call.site);
    OperatorRecord record("tanren::attention", q, k, v);
    const auto [out, log_sums] =
        BlockedAttention(call, draw.key, draw.threshold, ids).forward(parts);
    record.made(out);
    note_dry_forward(2 * out.numel() * (k.defined() ? k.size(1) : length));
    context->save_for_backward({q, k, v, call.bias, out, log_sums, ids});
    auto& saved = context->saved_data;
    saved["num_heads"] = call.num_heads;
    saved["p"] = call.p;
    saved["causal"] = call.causal;
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
    const at::Tensor &q = tensors[0], &k = tensors[1], &v = tensors[2];
    auto& saved = context->saved_data;
    const auto word = [&](const char* name) { return static_cast<uint32_t>(saved[name].toInt()); };
    const AttentionCall call{saved["num_heads"].toInt(), saved["p"].toDouble(), 0,
                             saved["causal"].toBool(), tensors[3]};
    const auto like = [](const at::Tensor& x) { return x.defined() ? at::empty_like(x) : x; };
    const at::Tensor dq = like(q), dk = like(k), dv = like(v);
    // q, k and v also stand for their gradients, which have the same sizes.
    const OperatorRecord record("tanren::attention_backward", gradients[0], tensors[4], q, k, v);
    BlockedAttention(call, {word("key0"), word("key1")}, word("threshold"), tensors[6])
        .backward(parts_of(q, k, v), tensors[4], tensors[5], gradients[0], parts_of(dq, dk, dv));
    return {dq, dk, dv, {}};
  }
};

}  // namespace

at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionCall& call) {
  // torch's Function takes no undefined tensors.
  const auto dense = [](const at::Tensor& x) {
    return x.defined() ? std::optional<at::Tensor>(x.contiguous()) : std::nullopt;
  };
  return AttentionFunction::apply(q.contiguous(), dense(k), dense(v), call);
}

}  // namespace tanren
