#include "tanren/ops/cross_entropy.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/base/text.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/cross_entropy_kernel.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tanren {

void check_labels(const at::Tensor& labels, int64_t classes) {
  if (is_dry(labels)) return;
  const auto* values = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (values[i] != kIgnoredLabel && (values[i] < 0 || values[i] >= classes)) {
      throw DataError(fmt::format(
          "[ops] label {} is outside [0, {}) and not -100; the data has more tokens than the model",
          values[i], classes));
    }
  }
}

namespace {

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& targets) {
    const at::Tensor logits = scores.contiguous(), labels = targets.contiguous();
    const int64_t rows = logits.size(0), classes = logits.size(1);
    check_labels(labels, classes);
    const auto wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor maxima = at::empty({rows}, logits.options().dtype(wide));
    const at::Tensor sums = at::empty_like(maxima), losses = at::empty_like(maxima);
    context->save_for_backward({logits, labels, maxima, sums});
    const OperatorRecord record("tanren::cross_entropy", logits, labels);
    if (is_dry(logits)) return losses.sum();
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, logits.scalar_type(), "cross_entropy", [&] {
          using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
          cross_entropy_rows(logits.const_data_ptr<scalar_t>(), labels.const_data_ptr<int64_t>(),
                             rows, classes, maxima.mutable_data_ptr<Acc>(),
                             sums.mutable_data_ptr<Acc>(), losses.mutable_data_ptr<Acc>());
        });
    return losses.sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error(
          "[ops] cross_entropy_sum can be differentiated once; use "
          "cross_entropy_sum_reference for second derivatives");
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &labels = saved[1], &maxima = saved[2], &sums = saved[3];
    at::Tensor result = at::empty_like(logits);
    if (is_dry(result)) return {result, {}};
    const OperatorRecord record("tanren::cross_entropy_backward", logits, labels, result);
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, logits.scalar_type(), "cross_entropy_backward", [&] {
          using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
          cross_entropy_gradient(logits.const_data_ptr<scalar_t>(),
                                 labels.const_data_ptr<int64_t>(), maxima.const_data_ptr<Acc>(),
                                 sums.const_data_ptr<Acc>(),
                                 static_cast<Acc>(gradients[0].item<double>()), logits.size(0),
                                 logits.size(1), result.mutable_data_ptr<scalar_t>());
        });
    return {result, {}};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels) {
  // torch's operator shows the observer of a dry run (a table of layers) where the loss begins. A
  // dry run whose memory is recorded needs our kernel's own allocations.
  const bool is_table = is_dry(logits) && !c10::memoryProfilingEnabled();
  if (!has_cpu_kernels(logits) || is_table) return cross_entropy_sum_reference(logits, labels);
  return CrossEntropyFunction::apply(logits, labels);
}

at::Tensor cross_entropy_sum_reference(const at::Tensor& logits, const at::Tensor& labels,
                                       double label_smoothing) {
  const at::Tensor scores = logits.element_size() < 4 ? logits.to(at::kFloat) : logits;
  return at::cross_entropy_loss(scores, labels, {}, at::Reduction::Sum, kIgnoredLabel,
                                label_smoothing);
}

}  // namespace tanren
