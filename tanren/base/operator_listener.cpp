#include "tanren/base/operator_listener.h"

#include <ATen/core/Scalar.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/conv2d_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/matmul_ops.h>
#include <torch/library.h>

#include <utility>

namespace tanren {

namespace {

using Answer = OperatorListener::Answer;
using Bias = OperatorListener::Bias;

thread_local const OperatorListenerScope* innermost_listener = nullptr;

// The listener's answer, or else what `run` computes.
template <typename Ask, typename Run>
at::Tensor answered(const Ask& ask, const Run& run) {
  if (const Answer answer = ask_listener(ask)) return *answer;
  return run();
}

at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                  const Bias& bias) {
  return answered(
      [&](OperatorListener& own) { return own.linear(input, weight, bias); },
      [&] { return at::_ops::linear::redispatch(below_hook(keys), input, weight, bias); });
}

at::Tensor addmm(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& left,
                 const at::Tensor& right, const at::Scalar& beta, const at::Scalar& alpha) {
  return answered([&](OperatorListener& own) { return own.addmm(added, left, right, beta, alpha); },
                  [&] {
                    return at::_ops::addmm::redispatch(below_hook(keys), added, left, right, beta,
                                                       alpha);
                  });
}

at::Tensor matmul(c10::DispatchKeySet keys, const at::Tensor& left, const at::Tensor& right) {
  return answered([&](OperatorListener& own) { return own.matmul(left, right); },
                  [&] { return at::_ops::matmul::redispatch(below_hook(keys), left, right); });
}

at::Tensor conv2d(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                  const Bias& bias, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                  c10::SymIntArrayRef dilation, c10::SymInt groups) {
  return answered(
      [&](OperatorListener& own) {
        return own.conv2d(input, weight, bias,
                          {.stride = C10_AS_INTARRAYREF_SLOW(stride),
                           .padding = C10_AS_INTARRAYREF_SLOW(padding),
                           .dilation = C10_AS_INTARRAYREF_SLOW(dilation),
                           .groups = groups.expect_int()});
      },
      [&] {
        return at::_ops::conv2d::redispatch(below_hook(keys), input, weight, bias, stride, padding,
                                            dilation, groups);
      });
}

at::Tensor embedding(c10::DispatchKeySet keys, const at::Tensor& weight, const at::Tensor& indices,
                     c10::SymInt padding_idx, bool scale_grad_by_freq, bool sparse) {
  return answered(
      [&](OperatorListener& own) {
        return own.trained_embedding(weight, indices,
                                     {.padding_index = padding_idx.expect_int(),
                                      .by_frequency = scale_grad_by_freq,
                                      .sparse = sparse});
      },
      [&] {
        return at::_ops::embedding::redispatch(below_hook(keys), weight, indices, padding_idx,
                                               scale_grad_by_freq, sparse);
      });
}

// The first scope calls it. Until then the operators fall through the hook.
void add_once() {
  static const bool added = [] {
    add_to_hook([](torch::Library& operators) {
      operators.impl("linear", linear);
      operators.impl("addmm", addmm);
      operators.impl("matmul", matmul);
      operators.impl("conv2d", conv2d);
      operators.impl("embedding", embedding);
    });
    return true;
  }();
  (void)added;
}

}  // namespace

Answer ask_listener(c10::function_ref<Answer(OperatorListener&)> ask) {
  const auto listener = OperatorListenerScope::current();
  if (listener == nullptr) return std::nullopt;
  const OperatorListenerScope unheard(nullptr);
  return ask(*listener);
}

Answer OperatorListener::linear(const at::Tensor&, const at::Tensor&, const Bias&) { return {}; }

Answer OperatorListener::addmm(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Scalar&, const at::Scalar&) {
  return {};
}

Answer OperatorListener::matmul(const at::Tensor&, const at::Tensor&) { return {}; }

Answer OperatorListener::conv2d(const at::Tensor&, const at::Tensor&, const Bias&,
                                const Convolution&) {
  return {};
}

Answer OperatorListener::embedding(const at::Tensor&, const at::Tensor&) { return {}; }

Answer OperatorListener::trained_embedding(const at::Tensor& weight, const at::Tensor& indices,
                                           const Embedding&) {
  return embedding(weight, indices);
}

OperatorListenerScope::OperatorListenerScope(std::shared_ptr<OperatorListener> listener)
    : listener_(std::move(listener)), outer_(innermost_listener) {
  if (listener_) {
    add_once();
    hook_.emplace();
  }
  innermost_listener = this;
}

OperatorListenerScope::~OperatorListenerScope() { innermost_listener = outer_; }

std::shared_ptr<OperatorListener> OperatorListenerScope::current() {
  return innermost_listener != nullptr ? innermost_listener->listener_ : nullptr;
}

}  // namespace tanren
