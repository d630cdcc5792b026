#include "tanren/ops/linear_cross_entropy.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/operator_listener.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/cross_entropy.h"
#include "tanren/ops/cross_entropy_kernel.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace tanren {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 25;
constexpr int64_t kFewestRows = 512;
// Classes of a 16-bit weight gradient at a time: a piece stays in the cache until it is summed.
constexpr int64_t kGradientClasses = 4096;

at::ScalarType wide_type(at::ScalarType type) { return type == at::kDouble ? type : at::kFloat; }

// The head's operands, cast as by autocast.
struct OutputHead {
  at::Tensor states, weight, bias, labels;
  double smoothing = 0;
  int64_t chunk_rows = 0;
};

struct Gradients {
  at::Tensor states, weight, bias;  // undefined if not wanted
};

// Which gradients are wanted.
struct Wanted {
  bool states = false, weight = false, bias = false;
  bool any() const { return states || weight || bias; }
};

// Sums the losses of the rows of `scores`. With `differentiate`, scores become seed × their
// gradient.
at::Tensor fused_entropy(at::Tensor& scores, const at::Tensor& labels, bool differentiate,
                         double seed) {
  const int64_t rows = scores.size(0), classes = scores.size(1);
  const at::Tensor maxima =
      at::empty({rows}, scores.options().dtype(wide_type(scores.scalar_type())));
  const at::Tensor sums = at::empty_like(maxima), losses = at::empty_like(maxima);
  const OperatorRecord record("tanren::cross_entropy", scores, labels);
  if (is_dry(scores)) return losses.sum();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, scores.scalar_type(), "linear_cross_entropy", [&] {
        using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        auto* values = scores.mutable_data_ptr<scalar_t>();
        const auto* targets = labels.const_data_ptr<int64_t>();
        cross_entropy_rows(values, targets, rows, classes, maxima.mutable_data_ptr<Acc>(),
                           sums.mutable_data_ptr<Acc>(), losses.mutable_data_ptr<Acc>());
        if (!differentiate) return;
        cross_entropy_gradient(values, targets, maxima.const_data_ptr<Acc>(),
                               sums.const_data_ptr<Acc>(), static_cast<Acc>(seed), rows, classes,
                               values);
      });
  return losses.sum();
}

// The same with ATen operations, for other devices and smoothed labels.
at::Tensor composed_entropy(at::Tensor& scores, const at::Tensor& labels, double smoothing,
                            bool differentiate, const at::Tensor& seed) {
  at::Tensor wide = scores.to(wide_type(scores.scalar_type()));
  const at::Tensor counts = labels.ne(kIgnoredLabel).unsqueeze(1);
  const at::Tensor own = labels.clamp_min(0).unsqueeze(1);
  const at::Tensor log_sums = at::logsumexp(wide, 1, /*keepdim=*/true);
  at::Tensor losses = log_sums - (1 - smoothing) * wide.gather(1, own);
  if (smoothing > 0) losses = losses - smoothing * wide.mean(1, /*keepdim=*/true);
  at::Tensor sum = losses.masked_fill(~counts, 0).sum();
  if (differentiate) {
    wide = wide.sub(log_sums).exp_();
    if (smoothing > 0) wide.sub_(smoothing / static_cast<double>(wide.size(1)));
    wide.scatter_add_(1, own, at::full_like(own, -(1 - smoothing), wide.options()));
    scores.copy_(wide.masked_fill_(~counts, 0).mul_(seed));
  }
  return sum;
}

// gradient += scoresᵀ × states in the gradient's type, which may be wider; scores holds a gradient.
void add_weight_gradient(const at::Tensor& scores, const at::Tensor& states,
                         const at::Tensor& gradient) {
  if (scores.scalar_type() == gradient.scalar_type()) {
    gradient.addmm_(scores.t(), states);
    return;
  }
  for (int64_t first = 0; first < gradient.size(0); first += kGradientClasses) {
    const int64_t count = std::min(kGradientClasses, gradient.size(0) - first);
    gradient.narrow(0, first, count).add_(at::mm(scores.narrow(1, first, count).t(), states));
  }
}

// The loss, and those of its gradients times `seed` that are wanted, chunk by chunk.
std::pair<at::Tensor, Gradients> pass_over(const OutputHead& head, const Wanted& wanted,
                                           const at::Tensor& seed) {
  const MemoryScope memory(MemoryKind::temporaries);
  const int64_t rows = head.states.size(0), classes = head.weight.size(0);
  const auto wide = wide_type(head.states.scalar_type());
  const bool fused = head.smoothing == 0 && has_cpu_kernels(head.states);
  const double fused_seed = fused && wanted.any() && !is_dry(seed) ? seed.item<double>() : 0;
  Gradients gradients;
  if (wanted.states) gradients.states = at::empty(head.states.sizes(), head.states.options());
  if (wanted.weight) {
    gradients.weight = at::zeros(head.weight.sizes(), head.weight.options().dtype(wide));
  }
  if (wanted.bias) gradients.bias = at::zeros({classes}, head.weight.options().dtype(wide));
  at::Tensor loss = at::zeros({}, head.states.options().dtype(wide));
  const int64_t most = std::min(head.chunk_rows, rows);
  const at::Tensor memory_of_scores = at::empty({most, classes}, head.states.options());
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    const at::Tensor states = head.states.narrow(0, first, count);
    const at::Tensor labels = head.labels.narrow(0, first, count);
    at::Tensor scores = memory_of_scores.narrow(0, 0, count);
    if (head.bias.defined()) {
      at::addmm_out(scores, head.bias, states, head.weight.t());
    } else {
      at::mm_out(scores, states, head.weight.t());
    }
    loss += fused ? fused_entropy(scores, labels, wanted.any(), fused_seed)
                  : composed_entropy(scores, labels, head.smoothing, wanted.any(), seed);
    if (wanted.states) {
      at::Tensor below = gradients.states.narrow(0, first, count);
      at::mm_out(below, scores, head.weight);
    }
    if (wanted.weight) add_weight_gradient(scores, states, gradients.weight);
    if (wanted.bias) gradients.bias.add_(scores.sum(0, /*keepdim=*/false, wide));
  }
  return {loss, gradients};
}

// Differentiable in the caller's states, weight and bias; `head` holds their cast copies, which the
// arithmetic uses.
class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& states,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const OutputHead& head, bool with_gradients) {
    const Wanted wanted{states.requires_grad(), weight.requires_grad(),
                        bias.has_value() && bias->requires_grad()};
    context->save_for_backward({head.states, head.weight, head.bias, head.labels});
    context->saved_data["smoothing"] = head.smoothing;
    context->saved_data["chunk_rows"] = head.chunk_rows;
    const at::Tensor one =
        at::ones({}, head.states.options().dtype(wide_type(head.states.scalar_type())));
    note_dry_forward(head.states.numel() * head.weight.size(0));
    auto [loss, gradients] = pass_over(head, with_gradients ? wanted : Wanted{}, one);
    if (with_gradients) {
      context->saved_data["states"] = gradients.states;
      context->saved_data["weight"] = gradients.weight;
      context->saved_data["bias"] = gradients.bias;
    }
    return loss;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list seeds) {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "[ops] linear_cross_entropy_sum can be differentiated once; use at::linear and "
          "cross_entropy_sum_reference for second derivatives");
    }
    auto& data = context->saved_data;
    Gradients gradients;
    if (data.count("weight") > 0) {
      // The saved gradients are moved out to avoid a copy. A second backward over a retained graph
      // computes them again.
      const auto take = [&](const char* name) {
        const at::Tensor gradient = data[name].toTensor();
        data.erase(name);
        return gradient.defined() ? gradient.to(wide_type(gradient.scalar_type())).mul_(seeds[0])
                                  : gradient;
      };
      gradients = {take("states"), take("weight"), take("bias")};
    } else {
      const auto saved = context->get_saved_variables();
      const OutputHead head{saved[0],
                            saved[1],
                            saved[2],
                            saved[3],
                            data["smoothing"].toDouble(),
                            data["chunk_rows"].toInt()};
      const Wanted wanted{context->needs_input_grad(0), context->needs_input_grad(1),
                          head.bias.defined() && context->needs_input_grad(2)};
      gradients = pass_over(head, wanted, seeds[0]).second;
    }
    return {gradients.states, gradients.weight, gradients.bias, {}, {}};
  }
};

// The same by at::linear, which a listener hears and may answer, and cross_entropy_sum.
at::Tensor heard_entropy(const at::Tensor& states, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias, const at::Tensor& labels,
                         const LinearCrossEntropyOptions& options) {
  const int64_t rows = states.size(0), most = chunk_rows(options, weight.size(0));
  if (states.device().is_cpu()) check_labels(labels.contiguous(), weight.size(0));
  at::Tensor loss;
  for (int64_t first = 0; first < std::max<int64_t>(rows, 1); first += most) {
    const int64_t count = std::min(most, rows - first);
    const at::Tensor scores = at::linear(states.narrow(0, first, count), weight, bias);
    const at::Tensor own = labels.narrow(0, first, count);
    const at::Tensor sum = options.label_smoothing == 0
                               ? cross_entropy_sum(scores, own)
                               : cross_entropy_sum_reference(scores, own, options.label_smoothing);
    loss = loss.defined() ? loss + sum : sum;
  }
  return loss;
}

}  // namespace

int64_t default_chunk_rows(int64_t classes) {
  return std::max(kFewestRows, kChunkElements / classes / 64 * 64);
}

int64_t chunk_rows(const LinearCrossEntropyOptions& options, int64_t classes) {
  return options.chunk_rows > 0 ? options.chunk_rows : default_chunk_rows(classes);
}

at::Tensor linear_cross_entropy_sum(const at::Tensor& states, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels,
                                    const LinearCrossEntropyOptions& options) {
  const auto added = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  if (OperatorListenerScope::current()) {
    return heard_entropy(states, weight, added, labels, options);
  }
  const auto device = states.device().type();
  const auto cast = [&](const at::Tensor& t) {
    if (!t.defined()) return t;
    if (!at::autocast::is_autocast_enabled(device)) return t.detach();
    return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), t, device).detach();
  };
  const int64_t rows = states.size(0), classes = weight.size(0);
  OutputHead head{cast(states).contiguous(),
                  cast(weight),
                  cast(bias),
                  labels.contiguous(),
                  options.label_smoothing,
                  chunk_rows(options, classes)};
  // Chunks of nearly equal size, so that the last is not tiny.
  const int64_t chunks = std::max<int64_t>(1, (rows + head.chunk_rows - 1) / head.chunk_rows);
  head.chunk_rows = std::max<int64_t>(1, (rows + chunks - 1) / chunks);
  if (device == at::kCPU) check_labels(head.labels, classes);
  const bool with_gradients = at::GradMode::is_enabled() && head.states.scalar_type() != at::kHalf;
  return LinearCrossEntropyFunction::apply(states, weight, added, head, with_gradients);
}

}  // namespace tanren
