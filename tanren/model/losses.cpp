#include "tanren/model/losses.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/ops/cross_entropy.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

namespace tanren {
namespace {

at::Tensor at_least_float(const at::Tensor& x) {
  return x.element_size() < 4 ? x.to(at::kFloat) : x;
}

// Elements per sample over `dims`, which exclude dim 0.
double positions(at::IntArrayRef dims) { return static_cast<double>(c10::multiply_integers(dims)); }

// Targets in the shape and dtype of `outputs`.
at::Tensor fit(const at::Tensor& targets, const at::Tensor& outputs, const char* loss) {
  if (outputs.dim() == 0 || targets.dim() == 0 || targets.size(0) != outputs.size(0) ||
      targets.numel() != outputs.numel()) {
    throw Error(
        fmt::format("[model] {}: outputs of shape [{}] do not fit targets of shape [{}]; "
                    "the model's outputs must be as many as the labels",
                    loss, fmt::join(outputs.sizes(), ", "), fmt::join(targets.sizes(), ", ")));
  }
  return targets.to(outputs.scalar_type()).reshape(outputs.sizes());
}

at::Tensor per_sample(const at::Tensor& sum, const at::Tensor& outputs) {
  const double count = positions(outputs.sizes().slice(1));
  return count == 1 ? sum : sum / count;
}

}  // namespace

Term cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double label_smoothing) {
  const at::Tensor scores = at_least_float(logits);
  at::Tensor sum =
      at::cross_entropy_loss(scores, labels, {}, at::Reduction::Sum, -100, label_smoothing);
  if (scores.dim() > 2) sum = sum / positions(scores.sizes().slice(2));
  return {"cross_entropy", sum};
}

Term token_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         double label_smoothing) {
  const at::Tensor scores = logits.reshape({-1, logits.size(-1)});
  const at::Tensor targets = labels.reshape({-1});
  return {"cross_entropy",
          label_smoothing == 0 ? cross_entropy_sum(scores, targets)
                               : cross_entropy_sum_reference(scores, targets, label_smoothing),
          "tokens"};
}

at::Tensor TokenHead::logits() const {
  return bias.defined() ? at::linear(states, weight, bias) : at::linear(states, weight);
}

Term token_cross_entropy(const TokenHead& head, const at::Tensor& labels,
                         const LinearCrossEntropyOptions& options) {
  const int64_t rows = labels.numel();
  if (rows <= chunk_rows(options, head.weight.size(0))) {
    return token_cross_entropy(head.logits(), labels, options.label_smoothing);
  }
  return {"cross_entropy",
          linear_cross_entropy_sum(head.states.reshape({rows, -1}), head.weight, head.bias,
                                   labels.reshape({-1}), options),
          "tokens"};
}

Term bce(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor scores = at_least_float(logits);
  return {"bce", per_sample(at::binary_cross_entropy_with_logits(
                                scores, fit(targets, scores, "bce"), {}, {}, at::Reduction::Sum),
                            scores)};
}

Term mse(const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor values = at_least_float(outputs);
  return {"mse", per_sample(at::mse_loss(values, fit(targets, values, "mse"), at::Reduction::Sum),
                            values)};
}

Term l1(const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor values = at_least_float(outputs);
  return {"l1",
          per_sample(at::l1_loss(values, fit(targets, values, "l1"), at::Reduction::Sum), values)};
}

}  // namespace tanren
