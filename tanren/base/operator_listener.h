// OperatorListener: hears the operators that models give their weights to, with the arguments, and
// may answer in their place. Within an OperatorListenerScope, the listener hears the operators of
// that thread. It hears them above autocast and autograd, so tensors are as the caller passed them,
// and an answer must itself be differentiable. Without a scope nothing is heard and nothing costs
// time. The second pass of a recomputed block is heard in the same way as the first.
#pragma once

#include "tanren/base/operator_hook.h"

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <optional>

namespace tanren {

class OperatorListener {
 public:
  // No value: the operator itself runs. The listener may then hear the operators that it consists
  // of: for a linear, an addmm or a matmul with weight.t(), which is a view of the weight. Under
  // autocast it hears the same operator a second time, with autocast's copies of its arguments.
  using Answer = std::optional<at::Tensor>;
  using Bias = std::optional<at::Tensor>;
  // Arguments of at::conv2d. Each list holds one number for both directions or one for each.
  struct Convolution {
    at::IntArrayRef stride, padding, dilation;
    int64_t groups = 1;
  };

  // The arguments of at::embedding that determine the gradient of its weight.
  struct Embedding {
    int64_t padding_index = -1;
    bool by_frequency = false, sparse = false;
  };

  virtual ~OperatorListener() = default;

  // A listener does not hear the operators that it calls while it answers.
  virtual Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias);
  virtual Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
                       const at::Scalar& beta, const at::Scalar& alpha);
  virtual Answer matmul(const at::Tensor& left, const at::Tensor& right);
  // Not heard if the padding is a word ("same").
  virtual Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                        const Convolution& how);
  virtual Answer embedding(const at::Tensor& weight, const at::Tensor& indices);
  // The same, for listeners whose answer has a gradient. The default calls embedding().
  virtual Answer trained_embedding(const at::Tensor& weight, const at::Tensor& indices,
                                   const Embedding& how);
};

class OperatorListenerScope {
 public:
  // A null listener: nothing is heard, even inside another scope.
  explicit OperatorListenerScope(std::shared_ptr<OperatorListener> listener);
  ~OperatorListenerScope();
  OperatorListenerScope(const OperatorListenerScope&) = delete;
  OperatorListenerScope& operator=(const OperatorListenerScope&) = delete;

  // The listener of this thread's innermost scope; null if there is none.
  static std::shared_ptr<OperatorListener> current();

 private:
  std::shared_ptr<OperatorListener> listener_;
  const OperatorListenerScope* outer_;
  std::optional<OperatorHookScope> hook_;
};

// Calls `ask` with this thread's listener, if there is one, and returns its answer. tanren's own
// operators call it if they compute one of the operators above themselves.
OperatorListener::Answer ask_listener(
    c10::function_ref<OperatorListener::Answer(OperatorListener&)> ask);

}  // namespace tanren
