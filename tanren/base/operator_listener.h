// OperatorListener: hears the operators that models give their weights to, with the arguments, and
// may answer in their place. OperatorListenerScope: within it the operators of its thread are
// heard, above autocast and autograd: tensors come as the caller has them, and an answer has to be
// differentiable itself. Nothing is heard, and nothing costs anything, without a scope. The second
// pass of a recomputed block is heard as its first one.
#pragma once

#include "tanren/base/operator_hook.h"

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <optional>

namespace tanren {

class OperatorListener {
 public:
  // No value: the operator itself runs. It may be heard again as those that it is made of: a linear
  // as an addmm or a matmul of weight.t(), which is a view of the weight. Under autocast the same
  // operator is heard a second time, with autocast's copies of its arguments.
  using Answer = std::optional<at::Tensor>;
  using Bias = std::optional<at::Tensor>;
  // Of at::conv2d: one number for both directions or one for each.
  struct Convolution {
    at::IntArrayRef stride, padding, dilation;
    int64_t groups = 1;
  };

  // Of at::embedding, what says which gradient its weight gets.
  struct Embedding {
    int64_t padding_index = -1;
    bool by_frequency = false, sparse = false;
  };

  virtual ~OperatorListener() = default;

  // What a listener calls while it answers is not heard by it.
  virtual Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias);
  virtual Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
                       const at::Scalar& beta, const at::Scalar& alpha);
  virtual Answer matmul(const at::Tensor& left, const at::Tensor& right);
  // Not heard if the padding is a word ("same").
  virtual Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                        const Convolution& how);
  virtual Answer embedding(const at::Tensor& weight, const at::Tensor& indices);
  // The same, for listeners whose answer has a gradient; as it is, it asks the one above.
  virtual Answer trained_embedding(const at::Tensor& weight, const at::Tensor& indices,
                                   const Embedding& how);
};

class OperatorListenerScope {
 public:
  // Null: nothing is heard, also within another scope.
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

// The answer of this thread's listener, if there is one, to the question that `ask` puts to it. For
// own operators that compute one of these themselves.
OperatorListener::Answer ask_listener(
    c10::function_ref<OperatorListener::Answer(OperatorListener&)> ask);

}  // namespace tanren
